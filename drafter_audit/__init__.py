"""Say what an EAGLE-3 drafter is, what it should be, and how well it drafts.

    open_drafter(ref, *, target=None) -> DrafterSpec
    compare(refs, *, target=None) -> Comparison
    load_drafter(ref, *, wiring=None, target=None, dtype="float32", device="cpu") -> Drafter

Every result has `to_dict()`, the JSON of the command line. All raise AuditError. A drafter is run with the extra `run`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than all of this; type checkers know the name
if TYPE_CHECKING:
    from drafter_audit.audit.compare import Comparison, compare
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.errors import AuditError
    from drafter_audit.model.drafter import Drafter
    from drafter_audit.model.load import load_drafter

__version__ = "0.1.0"
__all__ = [
    "AuditError",
    "Comparison",
    "Drafter",
    "DrafterSpec",
    "__version__",
    "compare",
    "load_drafter",
    "open_drafter",
]

# Loaded on first use (PEP 562): importing the package must cost nothing.
_HOMES = {
    "AuditError": "drafter_audit.errors",
    "Comparison": "drafter_audit.audit.compare",
    "Drafter": "drafter_audit.model.drafter",
    "DrafterSpec": "drafter_audit.drafter.spec",
    "compare": "drafter_audit.audit.compare",
    "load_drafter": "drafter_audit.model.load",
    "open_drafter": "drafter_audit.drafter.open",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
