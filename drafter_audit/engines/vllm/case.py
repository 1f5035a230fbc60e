"""One drafter on one release of vLLM, with what several rules need of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from packaging.version import Version

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Release, Rule
from drafter_audit.engines.vllm.rules import BY_NAME
from drafter_audit.engines.vllm.seen import IDS, Seen, placed, seen_config
from drafter_audit.engines.vllm.targets import Reach, gated, reach, support, target_class


@dataclass(frozen=True)
class Case:
    """`ids` are the layer ids that choose the target's states, with the rule by which they are found; None where the
    target's class chooses, and the number of its layers is not known."""

    spec: DrafterSpec
    release: Release
    seen: Seen

    @classmethod
    def of(cls, spec: DrafterSpec, release: Release) -> Case:
        return cls(spec, release, seen_config(spec, release))

    def since(self, version: str) -> bool:
        return self.release.number >= Version(version)

    @property
    def v2(self) -> bool:
        return self.release.runner == "v2"

    @property
    def fuses(self) -> bool:
        return self.spec.kind.traits.fuses

    @property
    def reads_aux(self) -> bool:
        """Whether several states are captured and go through fc: always, but with the switch that turns it off."""
        return self.fuses or not self.since("0.12.0") or self.seen.eagle.get("use_aux_hidden_state") is not False

    @property
    def layers(self) -> int | None:
        return self.spec.target.num_layers

    @cached_property
    def target(self) -> str | None:
        """The class that runs the target."""
        return target_class(self.spec.target)

    @cached_property
    def supported(self) -> bool | None:
        """Whether the target can be drafted for; None where that is not known."""
        return False if gated(self.spec.target, self.release) else support(self.target, self.release)

    @cached_property
    def reach(self) -> Reach:
        return reach(self.target, self.release)

    @cached_property
    def ids(self) -> tuple[Ids | None, Rule]:
        if not self.since("0.11.1"):
            return self._default, BY_NAME["ids_unread"]
        key, name = ("layer_ids", "ids_short_key_v2") if self.v2 else (IDS, "ids_nested_v1")
        nested = _ids(self.seen.eagle.get(key)) if BY_NAME[name].holds(self.release) else None
        if (top := _ids(self.seen.keys.get(IDS))) is not None:
            return top, BY_NAME["ids_top_level"]
        return (self._default, BY_NAME["ids_default"]) if nested is None else (nested, BY_NAME[name])

    @property
    def _default(self) -> Ids | None:
        return None if self.layers is None else (2, self.layers // 2, self.layers - 3)

    @cached_property
    def captured(self) -> Ids | None:
        """The boundaries that really come, in the order in which they are concatenated."""
        ids, top = self.ids[0], self.layers
        if ids is None:
            return None
        lowest = 0 if self.reach.embedding == "yes" else 1
        most = max(ids, default=0) if top is None else top if self.reach.last else top - 1
        return tuple(sorted({i for i in ids if lowest <= i <= most}))

    def hands_out(self, boundaries: Ids) -> bool:
        """Whether the target's class can give all of these."""
        embedding = 0 not in boundaries or self.reach.embedding == "yes"
        return embedding and (self.reach.last or self.layers not in boundaries)

    def slots_of(self, keys: Mapping[str, Any]) -> int:
        """How many states fc takes under a config of those keys."""
        if not self.since("0.22.0"):
            return 3
        nested = keys.get("eagle_config")
        told = _ids(nested.get(IDS)) if isinstance(nested, Mapping) else None
        if self.seen.model_class == "qwen3":
            told = _ids(keys.get(IDS)) or told
        number = keys.get("num_aux_hidden_states")
        return number if isinstance(number, int) else len(told) if told else 3

    @cached_property
    def slots(self) -> int:
        return self.slots_of(self.seen.keys)

    @property
    def state_width(self) -> int | None:
        """Width of one of the target's states."""
        return self.spec.target.hidden_size or self.spec.architecture.target_hidden_size

    @property
    def told_width(self) -> int | None:
        """Width that the config gives for one state; None where the key is null, which no engine multiplies."""
        told = self.seen.keys.get("target_hidden_size", self.spec.architecture.hidden_size)
        return told if isinstance(told, int) else None

    @property
    def misfit_width(self) -> bool:
        """Whether the config, by absence or by a number, gives the states another width than they have."""
        null = "target_hidden_size" in self.seen.keys and self.seen.keys["target_hidden_size"] is None
        wide = self.state_width
        if null:
            return wide != self.spec.architecture.hidden_size
        return wide is not None and self.told_width not in (None, wide)

    def place(self, key: str, value: object) -> dict[str, Any]:
        return placed(self.seen, key, value, self.release)


def _ids(value: object) -> Ids | None:
    """A list of ids that is set; an empty one counts as none, as there."""
    return tuple(value) if isinstance(value, list) and value else None
