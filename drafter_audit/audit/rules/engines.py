"""What an engine that the user named does otherwise than the drafter declares.

The engine's own file says what it does and by which rule; here each knob gets its code, its severity and what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from packaging.version import Version

from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.audit.rules.engine_codes import CODES as CODES
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import in_words
from drafter_audit.engines import engine_of
from drafter_audit.engines.base import Difference, Rule, Served


@dataclass(frozen=True)
class _Knob:
    """The code of a knob, what follows where an engine turns it, and the names, in part, of the keys that mend it."""

    code: str
    consequence: str
    keys: tuple[str, ...] = ()


_IDS = _Knob("ENGINE-IDS", "fc reads other states than in training, and nothing says so", ("layer_ids", "aux_hidden"))
_ROPE = _Knob("ENGINE-ROPE", "attention sees other positions than in training", ("rope", "position"))
_REST = _Knob("ENGINE-WIRING", "the drafter computes something else than in training")
_KNOBS: Mapping[str, _Knob] = MappingProxyType(
    {
        "boundaries": _IDS,
        "slot_order": _IDS,
        "pre_fc_norm": _Knob(
            "ENGINE-NORM", "fc reads states at another scale than in training", ("norm_before_fc", "fc_norm")
        ),
        "residual": _Knob(
            "RES-UNSUPPORTED", "the first layer adds its attention to another state", ("norm_before_residual",)
        ),
        "feedback": _Knob(
            "ENGINE-FEEDBACK", "the first draft token is as trained, later ones are not", ("norm_output", "post_norm")
        ),
        "embedding": _Knob("EMB-REPLACED", "the drafter drafts with an embedding that it was not trained with"),
        "head": _Knob("HEAD-REPLACED", "drafts are chosen by a head that was not trained with this drafter", ("tie_",)),
        "rope_theta": _ROPE,
        "rope_scaling": _ROPE,
        "position_offset": _ROPE,
        "vocab_map": _Knob("ENGINE-MAP", "draft ids become the wrong tokens", ("vocab",)),
        "embedding_scale": _Knob("ENGINE-SCALE", "embeddings reach the drafter at another scale than in training"),
    }
)
# Keys of config.json, by a part of their name, that an engine may not look for where they stand.
_PLACES = (("layer_ids", "IDS-KEYPLACE"), ("norm", "NORM-PLACE"))
_BY_ROLE: Mapping[str | None, Severity] = MappingProxyType({"trainable": "error", "frozen": "info"})


def engines(spec: DrafterSpec, served: Sequence[Served]) -> Findings:
    """What each release does with the drafter, in the order given; runners of one that agree are told once."""
    for _, runners in groupby(served, key=lambda one: (one.release.engine, one.release.version)):
        yield from _of_release(spec, tuple(runners))


def _of_release(spec: DrafterSpec, runners: tuple[Served, ...]) -> Findings:
    yield from _unread(runners[0])
    found = {served.release.runner: tuple(_of_runner(spec, served)) for served in runners}
    for finding in dict.fromkeys(_Hashed(finding) for each in found.values() for finding in each):
        where = [runner for runner, each in found.items() if finding in map(_Hashed, each)]
        yield _labelled(finding.finding, runners[0], None if len(where) == len(found) else where)


@dataclass(frozen=True)
class _Hashed:
    """A finding as a key: its mappings cannot be hashed."""

    finding: Finding

    def __hash__(self) -> int:
        return hash((self.finding.code, self.finding.what, self.finding.key))


def _labelled(finding: Finding, served: Served, runners: Sequence[str | None] | None) -> Finding:
    """The finding with the release in front, and the runners that it is true of where others differ."""
    release = served.release
    label = f"{release.engine}@{release.version}" + (f" ({' and '.join(map(str, runners))})" if runners else "")
    said = {"engine": release.engine, "version": release.version, "runners": list(runners or ())}
    return replace(finding, what=f"{label} {finding.what}", evidence={**said, **finding.evidence})


def _of_runner(spec: DrafterSpec, served: Served) -> Findings:
    yield from _refused(served)
    yield from (_differs(spec, served, difference) for difference in served.differs)
    yield from (_ignored(spec, served, key, rule) for key, rule in served.effect.ignored)
    for rule, text in served.effect.notes:
        yield Finding("ENGINE-NOTE", "info", f"notes: {text}", rule.text, evidence=_rule(rule))


def _unread(served: Served) -> Findings:
    release, newest = served.release, engine_of(served.release).newest
    if release.number > Version(newest):
        yield Finding(
            "ENGINE-UNREAD",
            "info",
            f"{release.engine} {release.version} is newer than the newest release that was read",
            f"it is answered by the rules of {newest}, which may have changed since",
            evidence={"engine": release.engine, "version": release.version, "read": newest},
        )


def _refused(served: Served) -> Findings:
    claimed = {part for knob in _KNOBS.values() for part in knob.keys}
    rest = {key: value for key, value in served.edit.items() if not _named({key: value}, tuple(claimed))}
    for rule, text in served.effect.refusals:
        yield Finding(
            "ENGINE-LOAD",
            "error",
            f"does not serve it: {text}",
            "it stops when it loads the drafter, or at the first request",
            evidence=_rule(rule),
            fix_set=rest or None,
        )


def _differs(spec: DrafterSpec, served: Served, difference: Difference) -> Finding:
    knob, rule = _knob(difference), difference.rule
    declared, effective = in_words(difference.declared), in_words(difference.effective)
    because = f"{rule.text}; " if rule else ""
    return Finding(
        knob.code,
        _severity(spec, difference),
        f"takes {difference.knob} as {effective}, the drafter declares {declared}",
        f"{because}{knob.consequence}",
        key=_key(spec, knob.code),
        evidence={
            "knob": difference.knob,
            "declared": _plain(difference.declared),
            "effective": _plain(difference.effective),
            **_rule(rule),
        },
        fix_set=(_named(served.edit, knob.keys) or None) if difference.mended else None,
    )


def _knob(difference: Difference) -> _Knob:
    """Embedding and head are replaced where the drafter's own give way; the other way round is some other wiring."""
    given_up = difference.knob not in ("embedding", "head") or difference.declared == "own"
    return _KNOBS.get(difference.knob, _REST) if given_up else _REST


def _severity(spec: DrafterSpec, difference: Difference) -> Severity:
    if difference.knob in ("embedding", "head") and difference.declared == "own":
        name = "embed_tokens.weight" if difference.knob == "embedding" else "lm_head.weight"
        return _BY_ROLE.get(next((t.role for t in spec.tensors if t.name.endswith(name)), None), "warning")
    others = [alternative.boundaries for alternative in spec.aux_layers.alternatives]
    unsure = difference.knob == "boundaries" and spec.aux_layers.confidence != "high"
    return "warning" if unsure and difference.effective in others else "error"


def _ignored(spec: DrafterSpec, served: Served, key: str, rule: Rule) -> Finding:
    """A key that an engine does not read. Where that changes a knob, the knob has a finding of its own."""
    code = next((code for part, code in _PLACES if part in key), "ENGINE-NOTE")
    part = "layer_ids" if code == "IDS-KEYPLACE" else key.rpartition(".")[2]
    return Finding(
        code,
        "info" if code == "ENGINE-NOTE" else "warning",
        f"does not read {key}",
        f"{rule.text}; it takes its own default there, and says nothing",
        key=key,
        evidence={"key": key, **_rule(rule)},
        fix_set=_named(served.edit, (part,)) or None,
    )


def _key(spec: DrafterSpec, code: str) -> str | None:
    if code == "ENGINE-IDS":
        return spec.aux_layers.key
    return {"RES-UNSUPPORTED": "norm_before_residual", "ENGINE-FEEDBACK": "norm_output"}.get(code)


def _rule(rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        return {"rule": None, "says": None, "proof": "deduced", "source": None}
    return {"rule": rule.name, "says": rule.text, "proof": rule.proof, "source": rule.source}


def _plain(value: object) -> object:
    """A knob's value as JSON."""
    if isinstance(value, tuple):
        return list(value) if all(isinstance(item, int) for item in value) else dict(value)
    return value


def _named(edit: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """What of an edit sets keys that have one of `parts` in their name, nested as it stands there."""
    return dict(_kept(edit, parts))


def _kept(edit: Mapping[str, Any], parts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for key, value in edit.items():
        if any(part in key for part in parts):
            yield key, value
        elif isinstance(value, Mapping) and (inner := dict(_kept(value, parts))):
            yield key, inner
