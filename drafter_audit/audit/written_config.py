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
from drafter_audit.engines.base import Served, merged, serve
from drafter_audit.errors import UsageError

OPTION = "--write-config"


@dataclass(frozen=True)
class Written:
    """`text` of the config.json to write for `engine` ("vllm@0.33.0"), `diff` from the drafter's own, "" where nothing
    is mended. `source` is the drafter's folder, `folder` where it goes, `left` what still differs there, in sentences.
    """

    engine: str
    source: Path
    folder: Path
    text: str
    diff: str
    left: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was done, and what not, in sentences."""
        done = (
            f"{self.folder}/config.json for {self.engine}; every other file there is a link into {self.source}."
            if self.diff
            else f"{self.folder}/config.json is the drafter's own: no edit gains anything under {self.engine}."
        )
        return done, *self.left

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "engine": self.engine, "diff": self.diff, "left": list(self.left)}


def config_for(result: Lint, folder: str) -> Written:
    """The config that brings the one engine release of `result` nearest to what the drafter declares.

    Raises UsageError where several engines were named, or the drafter is no local folder with a config.json.
    """
    source, releases = _folder_of(result.spec), list(dict.fromkeys(_release(served) for served in result.engines))
    if not result.named or len(releases) != 1:
        raise UsageError("a config is written for one engine release", OPTION, "name it with --engine, such as vllm")
    before = result.spec.origin.read("config.json", limit=MAX_CONFIG_BYTES).decode("utf-8-sig")
    edit, after = _best(result)
    text = _as_before(before, _noted(result.spec, edit, releases[0])) if edit else before
    diff = "".join(_diff(before, text))
    return Written(releases[0], source, Path(folder), text, diff, tuple(_left(after)))


def _folder_of(spec: DrafterSpec) -> Path:
    if spec.source != "local":
        mend = f"hf download {spec.name} --local-dir ./drafter, then lint that folder"
        raise UsageError("the weights are linked, so the drafter must be a folder here", spec.ref, mend)
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
        together = _both(together, edit)
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


def _both(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two edits in one, the first having the last word; unlike `merged`, a null is kept."""
    result = {**second, **first}
    for key in first.keys() & second.keys():
        one, other = first[key], second[key]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            result[key] = _both(one, other)
    return result


def _noted(spec: DrafterSpec, edit: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The config with the edit, and a note of the boundaries that its ids stand for."""
    boundaries, new = spec.aux_layers.boundaries, merged(spec.config.raw, edit)
    note = {} if boundaries is None else {"boundaries": list(boundaries)}
    return {**new, NOTE: {**note, **new.get(NOTE, {}), "written_for": engine}}


def _as_before(before: str, config: Mapping[str, Any]) -> str:
    """JSON laid out as the text `before` was, so that the diff shows what changed and no more."""
    indent = re.search(r"\n([ \t]+)\S", before)
    text = json.dumps(config, indent=indent[1] if indent else None, ensure_ascii=before.isascii())
    return text + ("\n" if before.endswith("\n") else "")


def _diff(before: str, after: str) -> Iterator[str]:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    for line in difflib.unified_diff(old, new, "config.json", "config.json"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _left(after: Sequence[Served]) -> Iterator[str]:
    """What no edit mends, and what the other runner of a release does otherwise."""
    for served in after:
        label = served.release.label
        for difference in served.differs:
            yield f"No edit mends {difference.knob} under {label}."
        for _, text in served.effect.refusals:
            yield f"{label} still does not serve it: {text}."
