"""`lint --write-config`: a drafter's config.json as one engine needs it, and what that leaves undone.

Nothing is written here: report/folder.py does.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint
from drafter_audit.checkpoint.config import MAX_CONFIG_BYTES
from drafter_audit.drafter.dialects import NOTE
from drafter_audit.drafter.open import with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines import engine_of
from drafter_audit.engines.base import Served, joined, merged
from drafter_audit.engines.serving import note, serve
from drafter_audit.errors import UsageError

OPTION = "--write-config"


@dataclass(frozen=True)
class Written:
    """`text` of the config.json to write for `engine` ("vllm@0.33.0"), `diff` from the drafter's own, "" where it is
    that. `source` is the drafter's folder, `folder` where it goes, `left` what still differs there or is not known, in
    sentences. `edited`: whether keys that the engine reads are set; else the diff is a note for later runs, or empty.
    """

    engine: str
    source: Path
    folder: Path
    text: str
    diff: str
    edited: bool
    left: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was done, and what not, in sentences."""
        file, unchanged = f"{self.folder}/config.json", f"no edit gains anything under {self.engine}"
        if self.edited:
            done = f"{file} is for {self.engine}."
        elif self.diff:
            done = f"{file} is the drafter's own with a note of what its layer ids mean: {unchanged}."
        else:
            done = f"{file} is the drafter's own: {unchanged}."
        return done, f"All other files there are links to those of {self.source}; hidden ones are left out.", *self.left

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "engine": self.engine, "diff": self.diff, "left": list(self.left)}


def config_for(result: Lint, folder: str) -> Written:
    """The config that brings the one engine release of `result` nearest to what the drafter declares.

    Raises UsageError where several engines were named, or the drafter is no local folder with a config.json.
    """
    source, release = _folder_of(result.spec), _release_of(result)
    before = result.spec.origin.read("config.json", limit=MAX_CONFIG_BYTES).decode("utf-8-sig")
    edit, after = _best(result)
    new = merged(result.spec.config.raw, {**edit, **note(result.spec, edit)})
    if new == result.spec.config.raw:
        text, diff = before, ""
    else:
        text = _laid_out(_noted(result.spec, new, release) if edit else new, before)
        diff = "".join(_diff(before, text))
    return Written(release, source, Path(folder), text, diff, bool(edit), tuple(_left(result.spec, after)))


def _release_of(result: Lint) -> str:
    """The one release that was named."""
    named = list(dict.fromkeys(_release(served) for served in result.engines)) if result.named else []
    if len(named) != 1:
        where = f"{OPTION} with {', '.join(named) or 'no --engine'}"
        raise UsageError("a config is written for one engine release", where, "name one with --engine, such as vllm")
    return named[0]


def _folder_of(spec: DrafterSpec) -> Path:
    if spec.source != "local":
        mend = f"hf download {spec.name} --local-dir ./drafter, then lint that folder"
        raise UsageError("the weights are linked, so the drafter must be a folder here", spec.ref, mend)
    if not spec.is_drafter:
        raise UsageError("it is not known to be a drafter", spec.ref, f"leave {OPTION} out, or name a drafter")
    if "config.json" not in spec.origin.files():
        raise UsageError("it has no config.json to mend", spec.ref, f"leave {OPTION} out")
    return Path(spec.origin.name)


def _release(served: Served) -> str:
    return f"{served.release.engine}@{served.release.version}"


def _best(result: Lint) -> tuple[Mapping[str, Any], tuple[Served, ...]]:
    """The edit that leaves least undone over all runners of the release, and how they answer after it.

    Runners may want different keys: each one's edit is tried, and all of them together; the default runner's first.
    """
    edits: list[Mapping[str, Any]] = [served.edit for served in result.engines if served.edit]
    together: Mapping[str, Any] = {}
    for edit in edits:
        together = joined(edit, together)
    tried = [({}, result.engines), *((edit, _served(result, edit)) for edit in (*edits, together) if edit)]
    return min(tried, key=lambda one: sum(_faults(served) for served in one[1]))


def _served(result: Lint, edit: Mapping[str, Any]) -> tuple[Served, ...]:
    """How the same releases answer to the edited drafter, which declares what it did before."""
    edited = with_config(result.spec, merged(result.spec.config.raw, edit))
    return tuple(serve(engine_of(served.release), edited, served.release) for served in result.engines)


def _faults(served: Served) -> int:
    """Refusals weigh more than differences, those more than keys that are not read."""
    effect = served.effect
    return 10_000 * len(effect.refusals) + 100 * len(served.differs) + len(effect.ignored)


def _noted(spec: DrafterSpec, new: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The edited config with a note of the boundaries that its ids stand for."""
    boundaries = spec.aux_layers.boundaries
    told = {} if boundaries is None else {"boundaries": list(boundaries)}
    return {**new, NOTE: {**told, **new.get(NOTE, {}), "written_for": engine}}


def _laid_out(config: Mapping[str, Any], before: str) -> str:
    """JSON laid out as the text `before` was, so that the diff shows what changed and no more; one line is spread."""
    indent = _INDENT.search(before)
    text = json.dumps(config, indent=indent[1] if indent else 2, ensure_ascii=before.isascii())
    return text + ("\n" if before.endswith("\n") or not indent else "")


_INDENT = re.compile(r"\n([ \t]+)\S")


def _diff(before: str, after: str) -> Iterator[str]:
    """The unified diff, of both spread over lines where `before` was one line."""
    old = before if _INDENT.search(before) else _laid_out(json.loads(before), before)
    yield from _unified(old.splitlines(keepends=True), after.splitlines(keepends=True))


def _unified(old: list[str], new: list[str]) -> Iterator[str]:
    for line in difflib.unified_diff(old, new, "config.json", "config.json"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _left(spec: DrafterSpec, after: Sequence[Served]) -> Iterator[str]:
    """What no edit mends, what the other runner of a release does otherwise, and what is not known."""
    reads_aux = spec.kind.traits.reads_aux
    for served in after:
        label = served.release.label
        if served.effect.wiring is None:
            yield f"What {label} makes of a drafter of this kind is not known."
        elif reads_aux and served.boundaries is None and not served.effect.refusals:
            yield f"Which boundaries {label} takes is not known here: they may still differ."
        for difference in served.differs:
            yield f"No edit mends {difference.knob} under {label}."
        for _, text in served.effect.refusals:
            yield f"{label} still cannot use it: {text}."
        for _, text in served.effect.faults:
            yield f"{label} has a fault that no edit mends: {text}."
