"""Say what an EAGLE-3 drafter is, what it should be, and how well it drafts.

    open_drafter(ref, *, target=None) -> DrafterSpec
    compare(refs, *, target=None) -> Comparison

Every result has `to_dict()`, the JSON of the command line. Both raise AuditError.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than all of this; type checkers know the name
if TYPE_CHECKING:
    from drafter_audit.audit.compare import Comparison, compare
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.errors import AuditError

__version__ = "0.1.0"
__all__ = ["AuditError", "Comparison", "DrafterSpec", "__version__", "compare", "open_drafter"]

# Loaded on first use (PEP 562): importing the package must cost nothing.
_HOMES = {
    "AuditError": "drafter_audit.errors",
    "Comparison": "drafter_audit.audit.compare",
    "DrafterSpec": "drafter_audit.drafter.spec",
    "compare": "drafter_audit.audit.compare",
    "open_drafter": "drafter_audit.drafter.open",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
