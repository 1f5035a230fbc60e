"""One door: a reference goes in, a source comes out."""

from __future__ import annotations

from drafter_audit.sources.base import Source
from drafter_audit.sources.local import open_local
from drafter_audit.sources.reference import parse_reference


def open_source(ref: str) -> Source:
    """The files behind `ref`; what lies on the Hub is asked for only when it is read.

    Raises BadReferenceError for what is no reference, NotFoundError for a path that does not exist.
    """
    reference = parse_reference(ref)
    if reference.kind == "local":
        return open_local(reference)
    if reference.kind == "bundled":
        from drafter_audit.sources.bundled import open_bundled

        return open_bundled(reference.name)
    # Imported here: a local path must not pay for the Hub's client.
    from drafter_audit.sources.hub import open_hub

    return open_hub(reference)
