"""Serving engines, measured from outside: started or attached to, asked, believed only where they can be, compared."""
