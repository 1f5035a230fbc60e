"""Say what an EAGLE-3 drafter is, what it should be, and how well it drafts."""

__version__ = "0.1.0"
