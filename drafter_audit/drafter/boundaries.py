"""From declared layer ids to boundaries of the target, with the confidence that the evidence allows.

Boundary b is the target's residual stream after b layers, before any norm: 0 the embedding output, L the last layer's
output. Two meanings of an id are in use: `output_of_layer` (i is boundary i + 1: SpecForge, ModelOpt, AngelSlim,
TorchSpec, NeMo, SGLang, TensorRT-LLM) and `boundary` (i is boundary i: speculators, vLLM, llama.cpp). One key,
`eagle_config.eagle_aux_hidden_state_layer_ids`, is written with both, so the ids themselves must tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.dialects import LIST_ORDER, NOTE
from drafter_audit.drafter.kinds import TRAITS
from drafter_audit.errors import UsageError

Reading = Literal["output_of_layer", "boundary", "default"]
Confidence = Literal["high", "medium", "low"]
Ids = tuple[int, ...]

USERS_NAME = "eagle_layer_ids"
_LONG_NAME = "eagle_aux_hidden_state_layer_ids"
_SHIFT = {"output_of_layer": 1, "boundary": 0}
_OTHER: dict[str, Reading] = {"output_of_layer": "boundary", "boundary": "output_of_layer"}

_DEFAULT_MINIMUM_LAYERS = 7  # of the target; below, the three default boundaries collide or leave the stack


@dataclass(frozen=True)
class Alternative:
    """Another reading of the same ids that cannot be ruled out."""

    reading: Reading
    boundaries: Ids

    def to_dict(self) -> dict[str, Any]:
        return {"reading": self.reading, "boundaries": list(self.boundaries)}


@dataclass(frozen=True)
class AuxLayers:
    """Which target states feed the drafter: ids verbatim with their key, and the boundaries they mean, in slot order.

    `boundaries` is None where they cannot be told; `why` says what the reading rests on. `others` are further keys of
    the same config that give other ids, and other boundaries too.
    """

    declared: Ids | None
    key: str | None
    reading: Reading
    boundaries: Ids | None
    confidence: Confidence
    why: str
    alternatives: tuple[Alternative, ...] = ()
    others: tuple[tuple[str, Ids], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "declared": None if self.declared is None else list(self.declared),
            "key": self.key,
            "reading": self.reading,
            "boundaries": None if self.boundaries is None else list(self.boundaries),
            "confidence": self.confidence,
            "alternatives": [alternative.to_dict() for alternative in self.alternatives],
            "why": self.why,
        }


@dataclass(frozen=True)
class _Declared:
    key: str
    ids: Ids
    meaning: Literal["output_of_layer", "boundary", "nested", "top"]


def read_aux_layers(
    config: ConfigView, *, kind: str, dialect: str, num_layers: int | None, slots: int | None
) -> AuxLayers:
    """The aux states of a drafter on a target of `num_layers` layers (None: unknown); `slots` is what fc takes."""
    if not TRAITS[kind].reads_aux:
        return AuxLayers(None, None, "default", None, "high", "this kind reads no aux states")
    found = _declared(config, dialect)
    if not found:
        return _noted(_defaulted(num_layers, slots, kind), config)
    first, *rest = found
    aux = _noted(_in_slot_order(_interpret(first, num_layers), dialect), config)
    return replace(aux, others=tuple((other.key, other.ids) for other in rest if not _agrees(other, aux, num_layers)))


def _agrees(other: _Declared, aux: AuxLayers, layers: int | None) -> bool:
    """Whether two keys mean one thing: [1, 29, 57] for SGLang beside [2, 30, 58] for vLLM is one drafter, well told."""
    read = _interpret(other, layers)
    if read.boundaries is None or aux.boundaries is None or "low" in (read.confidence, aux.confidence):
        return other.ids == aux.declared
    return other.ids == aux.declared or sorted(read.boundaries) == sorted(aux.boundaries)


def meant(aux: AuxLayers, boundaries: Ids, why: str) -> AuxLayers:
    """`aux` with the boundaries that its ids are known to mean, in slot order."""
    ids = tuple(sorted(aux.declared or ()))
    shifts: dict[Ids, Reading] = {_moved(ids, shift): reading for reading, shift in _SHIFT.items()}  # type: ignore[misc]
    reading = shifts.get(tuple(sorted(boundaries)), "default")
    return replace(aux, reading=reading, boundaries=boundaries, confidence="high", why=why, alternatives=())


def read_as(aux: AuxLayers, reading: Reading, layers: int | None) -> AuxLayers:
    """`aux` with its ids read as the user says, in the order that was found. Raises UsageError."""
    if aux.declared is None:
        raise UsageError("no layer ids are declared", "--reading", "leave it out: there is nothing to read")
    boundaries = _shifted(aux.declared, reading, layers)
    if boundaries is None:
        what = f"as {reading}, layer ids {list(aux.declared)} leave a target of {layers} layers"
        raise UsageError(what, "--reading", f"read them as {_OTHER[reading]}")
    listed = aux.boundaries is not None and list(aux.boundaries) != sorted(aux.boundaries)
    return meant(aux, boundaries if listed else tuple(sorted(boundaries)), "as --reading says")


def spelled(boundaries: Sequence[int] | None, layers: int | None = None) -> str:
    """Boundaries as people read them: an embedding tap is named as such, and so is the last of `layers` layers.

    >>> spelled((0, 30, 61), 61)
    "[0 (embedding output), 30, 61 (last layer's output)]"
    """
    names = {0: " (embedding output)", **({layers: " (last layer's output)"} if layers else {})}
    if boundaries is None:
        return "unknown"
    return f"[{', '.join(str(boundary) + names.get(boundary, '') for boundary in boundaries)}]"


def _noted(aux: AuxLayers, config: ConfigView) -> AuxLayers:
    """What an edit noted of the boundaries, if it did, over any reading of the ids."""
    note = ConfigView(config.section(NOTE), f"{config.where}: {NOTE}").layer_ids("boundaries")
    return aux if note is None else meant(aux, note, f"config.json notes them under {NOTE}.boundaries")


def _moved(ids: Ids, shift: int) -> Ids:
    return tuple(i + shift for i in ids)


def declared_slots(config: ConfigView, dialect: str) -> int | None:
    """How many target states the declared ids name, None where none are declared."""
    found = _declared(config, dialect)
    return len(found[0].ids) if found else None


def default_boundaries(num_layers: int) -> Ids:
    """The set every framework falls back to: [2, L//2, L-3]. Source: SGLang models/llama.py, vLLM interfaces.py."""
    return (2, num_layers // 2, num_layers - 3)


def _declared(config: ConfigView, dialect: str) -> list[_Declared]:
    """Every key that gives ids, the one that readers prefer first."""
    top_meaning: Literal["boundary", "top"] = "boundary" if dialect in ("speculators", "gguf") else "top"
    dflash = ConfigView(config.section("dflash_config"), f"{config.where}: dflash_config")
    places: list[tuple[ConfigView, str, str, Any]] = [
        (config, "aux_hidden_state_layer_ids", "", "boundary"),
        (dflash, "target_layer_ids", "dflash_config.", "output_of_layer"),
        (config, "dspark_target_layer_ids", "", _dspark_meaning(config)),
        (config, "target_layer_ids", "", _dspark_meaning(config)),
    ]
    nested = [(config.eagle, name, "eagle_config.", "nested") for name in (_LONG_NAME, USERS_NAME, "layer_ids")]
    top = [(config, name, "", top_meaning) for name in (_LONG_NAME, USERS_NAME)]
    layer = ConfigView(config.layer, config.where)
    inner = [(layer, name, f"{config.layer_section}.", top_meaning) for name in (_LONG_NAME, USERS_NAME)]
    places += [*top, *nested, *inner] if dialect == "speculators" else [*nested, *top, *inner]
    return [
        _Declared(prefix + key, ids, meaning)
        for view, key, prefix, meaning in places
        if (ids := view.layer_ids(key)) is not None
    ]


def _dspark_meaning(config: ConfigView) -> str:
    """DSpark and DFlash lists name outputs; DeepSeek V4.1's DSpark ids are inputs (vLLM eagle3_utils.py)."""
    return "boundary" if config.text("model_type") == "deepseek_v41" else "output_of_layer"


def _interpret(declared: _Declared, layers: int | None) -> AuxLayers:
    if declared.meaning == "boundary":
        aux = _read(declared, "boundary", "high", "this format stores boundaries", layers)
        if layers and sorted(declared.ids) == _output_default(layers):
            why = "this format stores boundaries, but the list is the usual one of output-of-layer ids"
            return replace(aux, why=why, alternatives=_alternatives(declared.ids, "boundary", layers))
        return aux
    if declared.meaning == "output_of_layer":
        return _read(declared, "output_of_layer", "high", "this format stores the outputs of layers", layers)
    return _interpret_ambiguous(declared, layers)


def _interpret_ambiguous(declared: _Declared, layers: int | None) -> AuxLayers:
    """The rules for a key that is written with both meanings, strongest evidence first."""
    reading, confidence, why = _evidence(declared, layers)
    aux = _read(declared, reading, confidence, why, layers)
    if confidence == "high":
        return aux
    return replace(aux, alternatives=_alternatives(declared.ids, reading, layers))


def _evidence(declared: _Declared, layers: int | None) -> tuple[Reading, Confidence, str]:
    ids = sorted(declared.ids)
    if ids[0] == -1:
        return "output_of_layer", "high", "-1 can only be the embedding output, counted as the output of a layer"
    if layers is not None and ids[-1] == layers:
        return "boundary", "high", f"the output of layer {layers} does not exist, boundary {layers} does"
    if layers is not None and ids == _output_default(layers):
        confidence: Confidence = "high" if declared.meaning == "nested" else "low"
        return "output_of_layer", confidence, "the usual list of output-of-layer ids, [1, L//2-1, L-4]"
    if layers is not None and ids == sorted(default_boundaries(layers)):
        return (
            "boundary",
            "medium",
            "the usual list of boundaries, [2, L//2, L-3]; a trainer may mean outputs by it too",
        )
    if layers is not None and ids[0] == 0 and tuple(ids[1:]) == default_boundaries(layers)[1:]:
        return "boundary", "medium", "the embedding output, then the usual boundaries [L//2, L-3]"
    if declared.meaning == "top":
        return "boundary", "medium", "vLLM and llama.cpp read this key as boundaries, SGLang does not read it"
    if ids[0] == 1:
        return "output_of_layer", "medium", "lists that begin with 1 name outputs of layers (SGLang's rule for Kimi)"
    unknown = "" if layers else " (the target's layer count is unknown)"
    return "output_of_layer", "low", f"no rule decides; most trainers that write this key mean outputs{unknown}"


def _output_default(layers: int) -> list[int]:
    return sorted({1, layers // 2 - 1, layers - 4})


def _read(declared: _Declared, reading: Reading, confidence: Confidence, why: str, layers: int | None) -> AuxLayers:
    boundaries = _shifted(declared.ids, reading, layers)
    if boundaries is None:
        return AuxLayers(
            declared.ids, declared.key, reading, None, "low", f"an id lies outside a target of {layers} layers"
        )
    return AuxLayers(declared.ids, declared.key, reading, boundaries, confidence, why)


def _shifted(ids: Sequence[int], reading: Reading, layers: int | None) -> Ids | None:
    """Boundaries in the list's order, None where one lies outside 0..L."""
    boundaries = tuple(i + _SHIFT[reading] for i in ids)
    top = layers if layers is not None else max(boundaries)
    return boundaries if all(0 <= b <= top for b in boundaries) else None


def _alternatives(ids: Ids, reading: Reading, layers: int | None) -> tuple[Alternative, ...]:
    other = _OTHER[reading]
    boundaries = _shifted(ids, other, layers)
    return () if boundaries is None else (Alternative(other, tuple(sorted(boundaries))),)


def _in_slot_order(aux: AuxLayers, dialect: str) -> AuxLayers:
    """Slots ascend by layer, whatever the list's order, but for trainers that concatenate in list order."""
    if aux.boundaries is None or list(aux.boundaries) == sorted(aux.boundaries):
        return aux
    if dialect in LIST_ORDER:
        why = f"{aux.why}; {dialect} concatenates in list order, engines ascending"
        ascending = Alternative(aux.reading, tuple(sorted(aux.boundaries)))
        return replace(aux, confidence="low", why=why, alternatives=(ascending, *aux.alternatives))
    return replace(aux, boundaries=tuple(sorted(aux.boundaries)))


def _defaulted(layers: int | None, slots: int | None, kind: str) -> AuxLayers:
    if not TRAITS[kind].defaults:
        return AuxLayers(None, None, "default", None, "low", "no ids declared, and this kind has no common default")
    if layers is None:
        return AuxLayers(None, None, "default", None, "low", "no ids declared, and the target's layer count is unknown")
    if slots not in (None, 3) or layers < _DEFAULT_MINIMUM_LAYERS:
        return AuxLayers(None, None, "default", None, "low", "no ids declared, and the usual default does not fit")
    why = "no ids declared; every framework then takes [2, L//2, L-3], which training may not have used"
    return AuxLayers(None, None, "default", default_boundaries(layers), "medium", why)
