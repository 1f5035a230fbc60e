"""What an engine that the user named does otherwise than the drafter declares.

The engine's own file says what it does and by which rule; here each knob gets its code, its severity and what follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from packaging.version import Version

from drafter_audit.audit.engine_codes import CODES as CODES
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.audit.knob_words import in_json, in_words
from drafter_audit.drafter.dialects import NOTE
from drafter_audit.drafter.open import with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines import engine_of
from drafter_audit.engines.base import Difference, Rule, Served, merged


@dataclass(frozen=True)
class _Knob:
    """The code of a knob, what follows where an engine turns it, and the names, in part, of the keys that mend it."""

    code: str
    consequence: str
    keys: tuple[str, ...] = ()


_IDS = _Knob(
    "ENGINE-IDS", "fc reads other states than in training, and nothing says so", ("layer_ids", "aux_hidden", NOTE)
)
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
        "head": _Knob(
            "HEAD-REPLACED",
            "drafts are chosen by a head that was not trained with this drafter",
            ("tie_", "draft_vocab_size"),
        ),
        "rope_theta": _ROPE,
        "rope_scaling": _ROPE,
        "position_offset": _ROPE,
        "vocab_map": _Knob("ENGINE-MAP", "draft ids become the wrong tokens", ("vocab",)),
    }
)
# Keys of config.json, by a part of their name, that an engine may not look for where they stand.
_PLACES = (("layer_ids", "IDS-KEYPLACE"), ("norm", "NORM-PLACE"))
_SAME = "what it takes instead is the same here"
_UNKNOWN = "without the target's layer count what it takes instead is not known"
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
    what = f"{label}{'' if finding.what.startswith(':') else ' '}{finding.what}"
    return replace(finding, what=what, evidence={**said, **finding.evidence})


def _of_runner(spec: DrafterSpec, served: Served) -> Findings:
    yield from _refused(spec, served)
    yield from (_differs(spec, served, difference) for difference in served.differs)
    yield from (_ignored(spec, served, key, rule) for key, rule in _unread_keys(spec, served).items())
    for rule, text in served.effect.notes:
        yield Finding("ENGINE-NOTE", "info", f": {text}", _told(rule, text), evidence=_rule(rule))


def _told(rule: Rule, text: str, otherwise: str = "no edit is needed for it") -> str:
    """The rule, where `text` is not that already."""
    return otherwise if text == rule.text else rule.text


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


def _refused(spec: DrafterSpec, served: Served) -> Findings:
    left, rest = _said_still(spec, served), _unclaimed(served)
    for rule, text in served.effect.refusals:
        yield Finding(
            "ENGINE-LOAD",
            "error",
            f"cannot use it: {text}",
            rule.text,
            evidence=_rule(rule),
            fix_set=None if rule in left else rest,
        )
    for rule, text in served.effect.faults:
        fix = None if rule in left else rest
        told = _told(rule, text, "it drafts from other numbers than training did, and nothing says so")
        yield Finding("ENGINE-FAULT", "error", f": {text}", told, evidence=_rule(rule), fix_set=fix)


def _unclaimed(served: Served) -> dict[str, Any] | None:
    """What of the edit no finding of a knob that differs brings."""
    claimed = tuple(part for difference in served.differs for part in _knob(difference).keys)
    return {key: value for key, value in served.edit.items() if not _named({key: value}, claimed)} or None


def _said_still(spec: DrafterSpec, served: Served) -> set[Rule]:
    """The rules by which the engine refuses the drafter, or serves it badly, with its edit made."""
    effect = served.effect
    if served.edit:
        edited = with_config(spec, merged(spec.config.raw, served.edit))
        effect = engine_of(served.release).effect(edited, served.release)
    return {rule for rule, _ in (*effect.refusals, *effect.faults)}


def _differs(spec: DrafterSpec, served: Served, difference: Difference) -> Finding:
    knob, rule = _knob(difference), difference.rule
    because, at_launch = f"{rule.text}; " if rule else "", _launch(served, difference)
    return Finding(
        knob.code,
        _severity(spec, difference),
        _departs(difference),
        f"{because}{knob.consequence}" + (f"; started with {json.dumps(at_launch)} it does not" if at_launch else ""),
        key=_key(spec, knob.code),
        evidence={
            "knob": difference.knob,
            "declared": in_json(difference.declared),
            "effective": in_json(difference.effective),
            **({"launch": at_launch} if at_launch else {}),
            **_rule(rule),
        },
        fix_set=_fix(served, knob.keys) if difference.mended else None,
    )


def _departs(difference: Difference) -> str:
    """What an engine does with one knob, after its name."""
    knob, declared, effective = difference.knob, difference.declared, difference.effective
    if declared == "own" and effective in ("target", "target_rows"):
        return f"puts the target's {knob} in the place of the drafter's own"
    return f"takes {knob} as {in_words(effective)}, the drafter declares {in_words(declared)}"


def _launch(served: Served, difference: Difference) -> Mapping[str, Any]:
    """Settings of the engine's own start that bring the boundaries where no key of config.json does."""
    settings: Mapping[str, Any] = served.effect.launch
    return settings if difference.knob == "boundaries" and not difference.mended else {}


def _knob(difference: Difference) -> _Knob:
    """Embedding and head are replaced where the drafter's own give way; the other way round is some other wiring."""
    given_up = difference.knob not in ("embedding", "head") or difference.declared == "own"
    return _KNOBS.get(difference.knob, _REST) if given_up else _REST


def _severity(spec: DrafterSpec, difference: Difference) -> Severity:
    if difference.knob in ("embedding", "head") and difference.declared == "own":
        name = "embed_tokens.weight" if difference.knob == "embedding" else "lm_head.weight"
        return _BY_ROLE.get(_role(spec, name), "warning")
    others = [alternative.boundaries for alternative in spec.aux_layers.alternatives]
    unsure = difference.knob == "boundaries" and spec.aux_layers.confidence != "high"
    return "warning" if unsure and difference.effective in others else "error"


def _role(spec: DrafterSpec, name: str) -> str | None:
    """The role of the tensor of that canonical name, None where it is not stored."""
    stored = spec.clues.tensors.get(name)
    return next((tensor.role for tensor in spec.tensors if stored and tensor.name == stored.name), None)


def _unread_keys(spec: DrafterSpec, served: Served) -> dict[str, Rule | None]:
    """The keys that the engine ignores, and the one of the layer ids also where its default happens to be the same."""
    effect, ids = served.effect, spec.aux_layers.key
    passed_over = served.boundaries is not None and bool(effect.read) and ids not in effect.read
    coincides = {ids: effect.because.get("boundaries")} if ids is not None and passed_over else {}
    return coincides | dict(effect.ignored)


def _ignored(spec: DrafterSpec, served: Served, key: str, rule: Rule | None) -> Finding:
    """A key that an engine does not read. Where that changes a knob, the knob has a finding of its own."""
    code = next((code for part, code in _PLACES if part in key), "ENGINE-NOTE")
    parts = _IDS.keys if code == "IDS-KEYPLACE" else (key.rpartition(".")[2],)
    turned = [d.knob for d in served.differs if d.rule == rule or any(part in key for part in _knob(d).keys)]
    unknown = code == "IDS-KEYPLACE" and served.boundaries is None
    instead = f"what it takes instead differs in {' and '.join(turned)}" if turned else _UNKNOWN if unknown else _SAME
    said = turned or rule is None or key in rule.text  # by the knob's own finding, or by this one
    why = instead if said or rule is None else f"{rule.text}; {instead}"
    return Finding(
        code,
        "info" if code == "ENGINE-NOTE" else "warning",
        f"does not read {key}",
        why,
        key=key,
        evidence={"key": key, **_rule(rule)},
        fix_set=_fix(served, parts),
    )


def _key(spec: DrafterSpec, code: str) -> str | None:
    if code == "ENGINE-IDS":
        return spec.aux_layers.key
    return {"RES-UNSUPPORTED": "norm_before_residual", "ENGINE-FEEDBACK": "norm_output"}.get(code)


def _rule(rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        return {"rule": None, "says": None, "proof": "deduced", "source": None}
    return {"rule": rule.name, "says": rule.text, "proof": rule.proof, "source": rule.source}


def _fix(served: Served, parts: Sequence[str]) -> dict[str, Any] | None:
    """What of the engine's edit sets keys of those names; ids go with the edit's note."""
    return _named(served.edit, parts) or None


def _named(edit: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """What of an edit sets keys that have one of `parts` in their name, nested as it stands there."""
    return dict(_kept(edit, parts))


def _kept(edit: Mapping[str, Any], parts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for key, value in edit.items():
        if any(part in key for part in parts):
            yield key, value
        elif isinstance(value, Mapping) and (inner := dict(_kept(value, parts))):
            yield key, inner
