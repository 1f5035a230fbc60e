"""Measurements against bounds: `make bench`."""
