"""Layer ids: missing, out of range, ambiguous, contradictory."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.boundaries import Alternative, spelled
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "IDS-MISSING",
        ("info", "warning"),
        what="No layer ids are declared. A warning where fc does not read three states, for which no default fits.",
        silent=(
            "Every engine then takes its own default; the server is healthy, and only acceptance shows other states."
        ),
        evidence="No key of config.json holds ids; fc.weight tells how many states are read.",
        fix="Write the ids that training used, under the key that your engine reads.",
        source="https://github.com/vllm-project/vllm/pull/50170",
    ),
    Code(
        "IDS-RANGE",
        ("error",),
        what="A layer id lies outside the target.",
        silent="A capture hook that is never reached says nothing: one state fewer arrives.",
        evidence="The ids, and the target's layer count.",
        fix="Write ids that the target has, or name the right target.",
        source="https://github.com/vllm-project/vllm/pull/46788",
    ),
    Code(
        "IDS-DUP",
        ("warning",),
        what="A layer id stands twice in the list.",
        silent="vLLM makes a set of the list, so fc gets fewer states than it reads; others read one state twice.",
        evidence="The list of ids.",
        fix="Write each id once, as training did; default ids collide where a target has few layers.",
        source="vLLM 0.33.0 vllm/model_executor/models/interfaces.py:1617",
    ),
    Code(
        "IDS-ORDER",
        ("warning",),
        what="Layer ids do not ascend.",
        silent=(
            "Engines concatenate states by layer, some trainers in the order of the list: same width, other numbers."
        ),
        evidence="The list of ids, and the trainer, where its fingerprint is known.",
        fix="Train with an ascending list, or reorder the columns of fc.weight.",
        source=(
            "vLLM 0.33.0 vllm/model_executor/models/interfaces.py:1617; Tencent/AngelSlim@67394ce "
            "angelslim/compressor/speculative/train/models/target/target_model_wrapper.py"
        ),
    ),
    Code(
        "IDS-AMBIG",
        ("warning",),
        what="Layer ids can be read in two ways, as outputs of layers or as boundaries.",
        silent=(
            "Under the other reading every state is off by one layer: acceptance may fall by a few percent only, and "
            "nothing stops."
        ),
        evidence="The ids, the target's layer count, and the boundaries of both readings.",
        fix="Ask the trainer which is meant, and pass --reading.",
        source="https://github.com/sgl-project/sglang/pull/25454",
    ),
    Code(
        "IDS-CONFLICT",
        ("error",),
        what="Two keys of one config.json give layer ids of different meaning.",
        silent="Each engine looks under its own key and takes what it finds.",
        evidence="Both keys with their ids. Two lists that mean the same boundaries are no conflict.",
        fix="Keep the ids that training used, each key in its own convention.",
        source=(
            "vLLM 0.33.0 vllm/v1/worker/gpu_model_runner.py:5207; SGLang 0.5.23 "
            "sglang/srt/model_executor/model_runner_components/spec_aux_hidden_state.py:192"
        ),
    ),
    Code(
        "AUX-COUNT",
        ("warning",),
        what="num_aux_hidden_states differs from the number of layer ids.",
        silent="Engines size fc by the one and capture by the other, which may show at the first request only.",
        evidence="Both numbers, and how many states fc.weight reads.",
        fix="Set num_aux_hidden_states to the number of ids where fc agrees with them.",
        source="https://github.com/sgl-project/sglang/pull/24663",
    ),
)


def layer_ids(spec: DrafterSpec) -> Findings:
    aux = spec.aux_layers
    if aux.declared is None:
        yield from _ids_missing(spec)
        return
    yield from _of_the_list(spec, list(aux.declared))
    readings = [other for other in aux.alternatives if other.reading != aux.reading]  # not another order: IDS-ORDER
    if readings:
        yield _ambiguous(spec, readings[0])
    yield from _conflicts(spec, list(aux.declared))


def _of_the_list(spec: DrafterSpec, ids: list[int]) -> Findings:
    """What is wrong with the list by itself, and against the target's layers."""
    layers = spec.target.num_layers
    faults: tuple[tuple[bool, str, Severity, str, str], ...] = (
        (
            spec.aux_layers.boundaries is None,
            "IDS-RANGE",
            "error",
            f"leave a target of {layers} layers",
            "an engine captures fewer states than fc reads, or stops",
        ),
        (len(set(ids)) < len(ids), "IDS-DUP", "warning", "repeat", "vLLM drops repeats, and fc no longer fits"),
        (
            ids != sorted(ids),
            "IDS-ORDER",
            "warning",
            "do not ascend",
            "engines concatenate ascending; AngelSlim, TorchSpec and NeMo train in list order",
        ),
    )
    for holds, code, severity, what, consequence in faults:
        if holds:
            evidence = {"ids": ids, "num_layers": layers}
            text = f"layer ids {ids} {what}"
            yield Finding(code, severity, text, consequence, key=spec.aux_layers.key, evidence=evidence)


def _conflicts(spec: DrafterSpec, ids: list[int]) -> Findings:
    aux = spec.aux_layers
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
        key=f"{'' if spec.dialect.name == 'speculators' else 'eagle_config.'}eagle_aux_hidden_state_layer_ids",
        evidence={"slots": slots},
    )


def _ambiguous(spec: DrafterSpec, other: Alternative) -> Finding:
    aux = spec.aux_layers
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
            fix_set=spec.config.edit("num_aux_hidden_states", fused) if fused == len(ids) else None,
        )
