"""Layer ids: missing, out of range, ambiguous, contradictory."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.boundaries import spelled
from drafter_audit.drafter.spec import DrafterSpec


def layer_ids(spec: DrafterSpec) -> Findings:
    aux = spec.aux_layers
    if aux.declared is None:
        yield from _ids_missing(spec)
        return
    ids, evidence = list(aux.declared), {"ids": list(aux.declared), "num_layers": spec.target.num_layers}
    if aux.boundaries is None:
        yield Finding(
            "IDS-RANGE",
            "error",
            f"layer ids {ids} leave a target of {spec.target.num_layers} layers",
            "an engine captures fewer states than fc reads, or stops",
            key=aux.key,
            evidence=evidence,
        )
    if len(set(ids)) < len(ids):
        yield Finding(
            "IDS-DUP",
            "warning",
            f"layer ids {ids} repeat",
            "vLLM drops repeats, and fc no longer fits",
            key=aux.key,
            evidence=evidence,
        )
    if ids != sorted(ids):
        yield Finding(
            "IDS-ORDER",
            "warning",
            f"layer ids {ids} do not ascend",
            "engines concatenate ascending; AngelSlim, TorchSpec and NeMo train in list order",
            key=aux.key,
            evidence=evidence,
        )
    if aux.alternatives:
        yield _ambiguous(spec)
    for key, others in aux.others:
        yield Finding(
            "IDS-CONFLICT",
            "error",
            f"{aux.key} gives {ids}, {key} gives {list(others)}",
            "which one counts depends on the engine",
            key=key,
            evidence={aux.key or "": ids, key: list(others)},
        )


def _ids_missing(spec: DrafterSpec) -> Findings:
    if not spec.kind.traits.defaults:
        return
    slots = spec.architecture.num_aux_hidden_states
    taken = "guess" if spec.aux_layers.boundaries is None else f"take boundaries {spelled(spec.aux_layers.boundaries)}"
    yield Finding(
        "IDS-MISSING",
        "info" if slots in (None, 3) else "warning",
        "no layer ids are declared",
        f"engines {taken}, whatever training used, and say nothing",
        key="eagle_config.eagle_aux_hidden_state_layer_ids",
        evidence={"slots": slots},
    )


def _ambiguous(spec: DrafterSpec) -> Finding:
    aux = spec.aux_layers
    other = aux.alternatives[0]
    taken = None if aux.boundaries is None else list(aux.boundaries)
    return Finding(
        "IDS-AMBIG",
        "warning",
        f"layer ids {list(aux.declared or ())} mean boundaries {spelled(aux.boundaries)} or "
        f"{spelled(other.boundaries)}; {aux.why}",
        "an engine that takes the other reading shifts every state by one layer, silently",
        key=aux.key,
        evidence={
            "reading": aux.reading,
            "boundaries": taken,
            "confidence": aux.confidence,
            "alternatives": [alternative.to_dict() for alternative in aux.alternatives],
        },
    )


def aux_count(spec: DrafterSpec) -> Findings:
    """Readers size fc by num_aux_hidden_states, else by eagle_config's list, else by a top-level one, else take 3
    (SGLang and vLLM llama_eagle3.py). fc itself is the truth: IDS-COUNT, SHAPE-MISMATCH."""
    said, ids = spec.sizes.declared["num_aux_hidden_states"], spec.aux_layers.declared
    fused = spec.sizes.measured.get("num_aux_hidden_states")
    if said is not None and ids is not None and said != len(ids):
        yield Finding(
            "AUX-COUNT",
            "warning",
            f"num_aux_hidden_states is {said}, {spec.aux_layers.key} lists {len(ids)} layers",
            "SGLang and vLLM size fc by the first and capture by the second",
            key="num_aux_hidden_states",
            evidence={
                "num_aux_hidden_states": said,
                "ids": list(ids),
                "fc": fused,
            },
        )
