"""Switches, positions and dtypes that readers take differently, and facts that contradict each other."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.architecture import DTYPE_NAMES, declared_dtype
from drafter_audit.drafter.signatures import declares_eagle3
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts import registry


def kind(spec: DrafterSpec) -> Findings:
    if spec.kind.name == "unknown":
        yield Finding(
            "KIND-UNKNOWN",
            "warning",
            f"this is no kind of drafter known here: {spec.kind.reason}",
            "tensors are counted, their roles are not known",
        )
    elif spec.kind.name == "lm" and declares_eagle3(spec.clues):
        yield Finding(
            "NOT-A-DRAFTER",
            "error",
            "config.json declares an EAGLE-3 drafter, the tensors are those of a plain language model",
            "an engine that takes it for a drafter stops deep inside, or accepts nothing",
            evidence={"architectures": list(spec.config.architectures), "layers": len(spec.clues.layers)},
        )
    elif spec.is_drafter and spec.dialect.name == "unknown":
        yield Finding(
            "DIALECT-UNKNOWN",
            "info",
            "no trainer's fingerprint was found",
            "whether embedding and head were trained is not known",
        )


def norms(spec: DrafterSpec) -> Findings:
    """A norm tensor without its switch is silently left out; a switch without its tensor is silently all ones."""
    if not spec.clues.has_weights or not spec.is_drafter:
        return
    arch = spec.architecture
    pairs = (("norm_before_fc", arch.norm_before_fc, "input_norm."), ("fc_norm", arch.fc_norm, "fc_norm."))
    for key, switch, prefix in pairs:
        stored = any(name.startswith(prefix) for name in spec.clues.tensors)
        if switch != stored:
            what = f"{prefix}* is stored but {key} is off" if stored else f"{key} is on but no {prefix}* is stored"
            yield Finding(
                "NORM-FLAG",
                "error",
                what,
                "engines drop the norm, or run it with weights of one, silently",
                key=key,
                evidence={"switch": switch, "stored": stored},
                fix_set={key: stored},
            )
    if arch.norm_before_residual is None:
        yield Finding(
            "RES-DEFAULT",
            "warning",
            "norm_before_residual is not declared",
            "vLLM's loader takes true, speculators' config class false",
            key="norm_before_residual",
        )


def biases(spec: DrafterSpec) -> Findings:
    """config.json against the tensors: SGLang drops stored biases, vLLM builds declared ones."""
    if not spec.clues.has_weights or not spec.kind.traits.eagle:
        return
    for key in ("attention_bias", "mlp_bias"):
        declared, stored = spec.config.boolean(key), getattr(spec.architecture, key)
        if declared is not None and declared != stored:
            what = f"{key} is on, no such bias is stored" if declared else f"{key} is off, biases are stored"
            yield Finding(
                "BIAS-FLAG",
                "error",
                what,
                "engines leave biases out, or add ones that were never loaded, silently",
                key=key,
                evidence={"declared": declared, "stored": stored},
                fix_set={key: stored},
            )


def fc_bias(spec: DrafterSpec) -> Findings:
    """EAGLE, SGLang and TensorRT-LLM go by `bias`, vLLM by `eagle_fc_bias` (vllm-project/vllm#11126)."""
    clues, stored = spec.clues, spec.architecture.fc_bias
    if not clues.has_weights or "fc.weight" not in clues.tensors or not spec.kind.traits.eagle:
        return
    for key in ("bias", "eagle_fc_bias"):
        declared = spec.config.boolean(key)
        undeclared = key == "eagle_fc_bias" and declared is None and stored and spec.kind.name == "eagle1"
        if undeclared or (declared is not None and declared != stored):
            what = "fc.bias is stored" if stored else "no fc.bias is stored"
            yield Finding(
                "BIAS-FLAG",
                "warning" if undeclared else "error",
                f"{what}, {key} is {'not declared' if declared is None else 'on' if declared else 'off'}",
                "engines leave the bias out, or demand one that is not there",
                key=key,
                evidence={"declared": declared, "stored": stored},
                fix_set={key: stored},
            )


def dtype(spec: DrafterSpec) -> Findings:
    said, stored = declared_dtype(spec.config), spec.architecture.dtype
    if spec.clues.packing.companions:  # weights are quantised: the dtype is that of the arithmetic
        return
    if spec.clues.has_weights and spec.is_drafter and said and stored in DTYPE_NAMES.values() and said != stored:
        yield Finding(
            "DTYPE",
            "info",
            f"config.json says {said}, the weights are {stored}",
            "a reader that follows the config rounds the weights",
            key="dtype",
            evidence={"declared": said, "stored": stored},
            fix_set={"dtype": stored},
        )


def rope(spec: DrafterSpec) -> Findings:
    rope = spec.architecture.rope
    if rope.conflict:
        yield Finding(
            "ROPE-CONFLICT",
            "warning",
            rope.conflict,
            "readers of the two layouts run different positions",
            key="rope_parameters",
            evidence=rope.to_dict(),
        )
    elif not rope.theta_declared and spec.kind.traits.eagle:
        yield Finding(
            "ROPE-DEFAULT",
            "info",
            "no rope_theta is declared, readers take 10000",
            "right only if training did the same",
            key="rope_theta",
            evidence=rope.to_dict(),
        )


def target(spec: DrafterSpec) -> Findings:
    if not spec.is_drafter:
        return
    target = spec.target
    if target.ref is None:
        yield Finding(
            "TARGET-UNKNOWN",
            "info",
            "no file says which target this drafter is for",
            "layer ids cannot be checked against a layer count; name it with --target",
            key=None,
        )
    elif target.unread:
        yield Finding(
            "TARGET-UNREAD",
            "warning",
            f"the target {target.ref} could not be read: {target.unread}",
            "layer ids cannot be checked against its layer count",
            key=None,
            evidence={"said_by": target.said_by},
        )


def vocabulary(spec: DrafterSpec) -> Findings:
    """The drafter's vocabulary against its target's, by their configs."""
    ours, theirs = spec.architecture.vocab_size, spec.target.vocab_size
    if spec.is_drafter and ours and theirs and ours != theirs:
        yield Finding(
            "VOCAB-MISMATCH",
            "warning",
            f"vocab_size is {ours}, the target's {theirs}",
            "padding rows are harmless, another tokenizer is not",
            key="vocab_size",
            evidence={"drafter": ours, "target": theirs},
        )


def target_heads(spec: DrafterSpec) -> Findings:
    """Heads of another size than the target's are allowed (Tencent/AngelSlim#5: 80 beside 128)."""
    ours, theirs = spec.architecture.head_dim, spec.target.head_dim
    if spec.kind.traits.eagle and spec.kind.name != "eagle3_mla" and ours and theirs and ours != theirs:
        yield Finding(
            "HEAD-DIM-TARGET",
            "info",
            f"head_dim is {ours}, the target's {theirs}",
            "it computes right; an engine that pages both caches alike may not start",
            key="head_dim",
            evidence={"drafter": ours, "target": theirs},
        )


def record(spec: DrafterSpec) -> Findings:
    """What a bundled record could not see of the config."""
    if spec.source != "bundled":
        return
    seen = registry.load(spec.ref)
    if seen.config_origin == "trainer_repo":
        what = "config.json was not seen: these are the settings in its trainer's repository"
        yield Finding("CONFIG-TRAINER", "info", what, "what was published may differ")
    elif not seen.config_complete:
        what = "config.json was seen in part"
        yield Finding("CONFIG-PARTIAL", "info", what, "a setting that is missing here may be declared there")


def facts(spec: DrafterSpec) -> Findings:
    for contradiction in spec.facts_disagree:
        yield Finding("FACTS-DISAGREE", "warning", contradiction, "the first is used", file="facts")
    for reason in spec.facts_unread:
        yield Finding("FACTS-UNREAD", "warning", reason, "what it may say is missing here", file="README.md")
