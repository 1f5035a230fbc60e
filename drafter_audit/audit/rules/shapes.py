"""Where config.json, the tensors and the drafter's own sizes disagree."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.architecture import declared_shape, measured_shape
from drafter_audit.drafter.expected import expected_tensors
from drafter_audit.drafter.spec import DrafterSpec

# Shapes that config.json and the tensors both tell, with what goes wrong when a reader believes the config.
_SHAPE_KEYS = {
    "hidden_size": ("hidden_size", "the drafter is built too narrow or too wide and its weights do not load"),
    "intermediate_size": ("intermediate_size", "the MLP is built in another size and its weights do not load"),
    "num_layers": ("num_hidden_layers", "layers are left unloaded, or built and left random"),
    "num_attention_heads": ("num_attention_heads", "the attention is split into the wrong heads"),
    "num_key_value_heads": ("num_key_value_heads", "the attention is split into the wrong heads"),
    "head_dim": ("head_dim", "the attention is split into the wrong heads, or its weights do not load"),
    "vocab_size": ("vocab_size", "the embedding or the vocabulary map does not load"),
    "draft_vocab_size": ("draft_vocab_size", "the head does not load, or its logits are mapped to the wrong tokens"),
    "num_aux_hidden_states": ("num_aux_hidden_states", "fc is built for another number of target states"),
}


def config_against_tensors(spec: DrafterSpec) -> Findings:
    """config.json against the tensors."""
    declared = declared_shape(spec.config)
    # The width of an aux state is not measured here: fc alone does not prove it (see fc_width).
    measured = measured_shape(spec.clues, declared, kind=spec.kind.name, target_hidden=spec.target.hidden_size)
    if declared["head_dim"] is None and declared["hidden_size"] and declared["num_attention_heads"]:
        declared["head_dim"] = declared["hidden_size"] // declared["num_attention_heads"]
    for name, (key, consequence) in _SHAPE_KEYS.items():
        said, stored = declared[name], measured.get(name)
        if said is not None and stored is not None and said != stored and spec.is_drafter:
            yield Finding(
                "SHAPE-MISMATCH",
                "error",
                f"{key} is {said}, the tensors say {stored}",
                consequence,
                key=key,
                evidence={"declared": said, "stored": stored},
                fix_set={key: stored},
            )


def tensors_against_each_other(spec: DrafterSpec) -> Findings:
    """Each stored tensor against the shape that the drafter's own sizes give it."""
    for name, shape in expected_tensors(spec.architecture, spec.kind.name).items():
        stored = spec.clues.shape(name)
        if stored is not None and stored != shape and name != "fc.weight":
            yield Finding(
                "TENSOR-SHAPE",
                "error",
                f"{name} is {list(stored)}, the drafter's other tensors call for {list(shape)}",
                "no engine can load it as it is",
                key=name,
                file=spec.clues.tensors[name].file,
                evidence={"stored": list(stored), "expected": list(shape)},
            )


def fc_width(spec: DrafterSpec) -> Findings:
    width, state = spec.clues.dim("fc.weight", 1), spec.architecture.target_hidden_size
    if width is None or not state or spec.kind.name == "eagle1":
        return
    ids = spec.aux_layers.declared
    if width % state:
        yield Finding(
            "FC-WIDTH",
            "error",
            f"fc reads {width}, which is no multiple of the target's hidden size {state}",
            "no whole number of target states fits",
            key="fc.weight",
            evidence={"fc_in": width, "target_hidden_size": state},
        )
    elif ids is not None and len(ids) * state != width:
        yield Finding(
            "IDS-COUNT",
            "error",
            f"{len(ids)} layer ids are declared, fc reads {width // state} states of {state}",
            "the concatenated states do not fit fc",
            key=spec.aux_layers.key,
            evidence={"ids": list(ids), "fc_in": width, "target_hidden_size": state},
        )
