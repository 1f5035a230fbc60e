"""What makes each engine run a drafter under the wiring that was found, and what mends what no config holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drafter_audit.drafter.boundaries import meant
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.open import with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.engines import engine_of
from drafter_audit.engines.base import SECTION, Release, joined, merged
from drafter_audit.engines.serving import serve
from drafter_audit.wiring.hypotheses import reverted
from drafter_audit.wiring.result import Fault

FILE = "config.json"

_MENDS: Mapping[str, str] = {
    "boundaries": "write the layer ids of these boundaries as the engine numbers them, or train on the declared ones",
    "slot_order": "export fc.weight again, its column blocks in the order of ascending boundaries",
    "pre_fc_norm": "export with the norms before fc that training had, and the switches that say so",
    "residual": "export again by an exporter of the trainer: engines fix this by the drafter's class",
    "feedback": "set norm_output as the engine reads it, or train on with the engine's feedback",
    "hidden_norm": "serve it with the engine that its trainer exports for, or train on with the engines' norms",
    "concat": "export q_proj, k_proj and v_proj again with their two column halves exchanged",
    "token_shift": "train with each state paired with the token after it",
    "position_offset": "train with the positions that engines give",
    "rope_theta": "write the base that training used",
    "rope_scaling": "write the scaling that training used, or none",
    "vocab_map": "export d2t again as offsets: target id less draft id",
    "embedding": "leave embed_tokens out of the export, or store the one that training used",
    "head": "store the head that training used as lm_head",
    "embedding_scale": "multiply the stored embedding by the factor, and export again",
    "final_norm": "export with the norm before the head that training had",
    "last_state": "serve it with an engine that hands on the last state as training had it",
}


@dataclass(frozen=True)
class Edit:
    """The keys of config.json to set for one engine, empty where no edit is needed or none is known; `needed` tells
    which. `left` are the knobs that the engine still wires otherwise after it."""

    engine: str
    set: Mapping[str, Any]
    needed: bool
    left: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """As one line."""
        if not self.needed:
            return f"{self.engine} already wires it so: nothing to set"
        if not self.set:
            return f"{self.engine}: no edit of {FILE} brings it there"
        left = f"; no edit mends {', '.join(self.left)}" if self.left else ""
        return f"{self.engine}: set in {FILE} {json.dumps(self.set)}{left}"

    def to_dict(self) -> dict[str, Any]:
        return {"engine": self.engine, "file": FILE, "set": dict(self.set), "needed": self.needed,
                "left": list(self.left)}  # fmt: skip


def edits(spec: DrafterSpec, wanted: Wiring, releases: Sequence[Release]) -> tuple[Edit, ...]:
    """For each release what makes it serve the drafter as `wanted`: the edit is tried on its rules, not promised."""
    return tuple(_edits(spec, wanted, releases))


def fault_edits(spec: DrafterSpec, fault: Fault, best: Wiring, releases: Sequence[Release]) -> tuple[Edit, ...]:
    """The same for one fault alone, all else as declared."""
    declared = declared_wiring(spec)
    assert declared is not None  # it was probed under it
    return edits(spec, reverted(declared, best, fault.knob), releases)


def mend_of(knob: str) -> str:
    """What mends a fault of that knob where no config does."""
    return _MENDS[knob]


def _edits(spec: DrafterSpec, wanted: Wiring, releases: Sequence[Release]) -> Iterator[Edit]:
    told = _meaning(spec, wanted)
    said = saying(told, wanted)
    edited = with_config(told, merged(told.config.raw, said))
    for release in releases:
        engine = engine_of(release)
        now, then = serve(engine, told, release, wanted), serve(engine, edited, release, wanted)
        if now.effect.wiring is None:
            continue  # what the engine does with drafters of this kind is not known
        left = tuple(difference.knob for difference in then.differs if not difference.mended)
        helps = len(left) < len(now.differs)
        yield Edit(release.label, joined(said, then.edit) if helps else {}, bool(now.differs), left)


def _meaning(spec: DrafterSpec, wanted: Wiring) -> DrafterSpec:
    """`spec` with its layer ids taken for the boundaries that it should read."""
    if wanted.boundaries is None or not spec.kind.traits.fuses:
        return spec
    return replace(spec, aux_layers=meant(spec.aux_layers, wanted.boundaries, "as the wiring check found"))


def saying(spec: DrafterSpec, wanted: Wiring) -> dict[str, Any]:
    """The keys of config.json that make the drafter itself declare `wanted`, each tried; without those that do not."""
    found: dict[str, Any] = {}
    for knob, keys in _keys(spec.config, wanted).items():
        before, after = declared_wiring(spec), declared_wiring(with_config(spec, merged(spec.config.raw, keys)))
        if before and after and knob in before.differs(wanted) and knob not in after.differs(wanted):
            found = joined(found, keys)
    return found


def _keys(config: ConfigView, wanted: Wiring) -> dict[str, dict[str, Any]]:
    """Knob -> the keys that declare it."""
    before_fc = {
        "norm_before_fc": wanted.pre_fc_norm in ("whole", "whole_then_per_state"),
        "fc_norm": wanted.pre_fc_norm in ("per_state", "whole_then_per_state"),
    }
    rope = _rope(config, wanted)
    return {
        "rope_theta": rope,
        "rope_scaling": rope,
        "pre_fc_norm": before_fc,
        "residual": {"norm_before_residual": wanted.residual == "post_norm"},
        "feedback": {"norm_output": wanted.feedback == "post_norm"},
        "embedding": {"embed_requires_grad": wanted.embedding == "own"},
        "final_norm": {SECTION: {"use_last_layernorm": wanted.final_norm}},
    }


def _rope(config: ConfigView, wanted: Wiring) -> dict[str, Any]:
    """Base and scaling in the layout that the file has, in the section that holds the layer's settings."""
    scaling = dict(wanted.rope_scaling or ())
    kind = scaling.pop("type", None)
    held = config.get("rope_parameters")
    if not isinstance(held, Mapping):
        told = {"rope_type": kind, **scaling} if kind else None
        theta = config.edit("rope_theta", wanted.rope_theta)
        return joined(theta, config.edit("rope_scaling", told, beside="rope_theta"))
    gone = dict.fromkeys(held.keys() - {"rope_theta", "rope_type"} - scaling.keys())
    told = {"rope_theta": wanted.rope_theta, "rope_type": kind or "default", **scaling, **gone}
    return config.edit("rope_parameters", told)
