"""What trainers and exporters are known to write, and what a name promises."""

from __future__ import annotations

import re

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts import registry

CODES = (
    Code(
        "NORM-OUTPUT-SF",
        ("warning", "info"),
        what="A drafter of SpecForge's declares norm_output, true or false, whose meaning changed on 2026-09-15.",
        silent=(
            "Trained before with true, it fed the next step the state before the norm, and engines feed it the one "
            "after: the first position drafts well, the next ones do not. Trained before with false, its head read "
            "states without the final norm, which engines apply all the same."
        ),
        evidence=(
            "SpecForge's fingerprint and the key. The date of training stands in no file. Run: release 0.2.0 computes "
            "plain feedback with the key true, and gives the head the state without the norm with the key false."
        ),
        fix=(
            "True, trained before the change: remove the key. False, trained before it: no config mends it, train "
            "again or run it without the final norm. Trained after: leave it."
        ),
        source="https://github.com/sgl-project/SpecForge/pull/879",
    ),
    Code(
        "MODELOPT-2NORM",
        ("info",),
        what=(
            "ModelOpt trains layer 0 with input_layernorm over the fused state, then hidden_norm; engines run "
            "hidden_norm alone."
        ),
        silent=(
            "The more the weights of input_layernorm differ among themselves, the lower acceptance; nothing else shows."
        ),
        evidence=(
            "ModelOpt's fingerprint. Run: the training forward of release 0.47.0 gives the logits of both norms, not "
            "of one; for latent attention with transformers' DeepSeek-V3 layer in place of Kimi's own. Where all "
            "weights of input_layernorm are alike, the two are one."
        ),
        fix="Run both ways and compare.",
        source=(
            "NVIDIA/Model-Optimizer bdd10c2db (#689, 2025-12-19), plugins/hf_eagle.py and transformers' "
            "LlamaDecoderLayer"
        ),
    ),
    Code(
        "MODELOPT-NO-STATES",
        ("error",),
        what="The first attention is as wide as one state: it was trained without an embedding beside it.",
        silent=(
            "A load that stops names a shape and not its cause. No engine has this network: each joins the embedding "
            "and the state."
        ),
        evidence=(
            "The columns of the first projections. Run: ModelOpt 0.47.0 with use_aux_hidden_state false gives its "
            "logits from the target's last state alone, whatever the tokens are."
        ),
        fix="None in the config: train it again with use_aux_hidden_state true.",
        source="NVIDIA/Model-Optimizer 0.47.0 torch/speculative/plugins/modeling_eagle.py, EagleModule",
    ),
    Code(
        "MODELOPT-VLLM",
        ("warning",),
        what="A drafter of ModelOpt's declares norm_before_residual, which its trainer does not do.",
        silent=(
            "vLLM and llama.cpp heed the key: the residual they add is the normed state. SGLang and TensorRT-LLM do "
            "not."
        ),
        evidence="ModelOpt's fingerprint and the key.",
        fix="Set norm_before_residual to false.",
        source=("NVIDIA/Model-Optimizer a2fbac7 scripts/convert_to_vllm_ckpt.py writes it for every drafter"),
    ),
    Code(
        "FC-SKIP",
        ("error",),
        what="What fc reads is as wide as the drafter, and fc is stored.",
        silent="EAGLE, SGLang and TensorRT-LLM run fc only where the widths differ: they leave it out.",
        evidence="The shape of fc.weight.",
        fix="None in the config; vLLM runs fc whatever the widths.",
        source=(
            "SGLang 0.5.23 models/llama_eagle3.py:238, SafeAILab/EAGLE cnets.py, TensorRT-LLM modeling_speculative.py"
        ),
    ),
    Code(
        "FEATURE-NAME",
        ("info",),
        what="The name says EAGLE-3.1 or P-EAGLE, and neither config nor tensors have what makes one.",
        silent=("Switches of a training recipe that never reached the drafter's config train a plain EAGLE-3 drafter."),
        evidence="Name, config.json and the names of the tensors.",
        fix="Ask who trained it; serve it as what its files say.",
        source="https://github.com/NVIDIA-NeMo/Automodel/pull/2897",
    ),
    Code(
        "NAME-DETECT",
        ("info",),
        what=("The name holds eagle-, by which vLLM takes it for an EAGLE-1 drafter where no method is given."),
        silent=(
            "The load mostly stops, with a shape and not with the method that it was taken for; where shapes fit, "
            "drafts are wrong."
        ),
        evidence="The reference by which it was opened.",
        fix="Give vLLM the method: eagle3.",
        source="vLLM 0.32.0 config/speculative.py:1334, tried before eagle3 at 1336",
    ),
)

_EAGLE31 = re.compile(r"eagle[-_]?3[._]1(?!\d)", re.IGNORECASE)
_PEAGLE = re.compile(r"(?<![a-z])p-?eagle", re.IGNORECASE)
_LAYERS = {"eagle3": "Llama", "eagle3_mla": "latent-attention"}
_EAGLE3 = ("eagle3", "eagle3_mla", "eagle3_noaux", "peagle")


def norm_output(spec: DrafterSpec) -> Findings:
    declared = spec.config.boolean("norm_output")
    if spec.dialect.name != "specforge" or declared is None:
        return
    severity, consequence = _NORM_OUTPUT[declared]
    what = f"norm_output is {str(declared).lower()} in a drafter of SpecForge's"
    yield Finding("NORM-OUTPUT-SF", severity, what, consequence, key="norm_output")


_NORM_OUTPUT: dict[bool, tuple[Severity, str]] = {
    True: (
        "warning",
        "engines feed the normed state to the next step; a drafter trained before PR 879 (2026-09-15) was fed the "
        "other one, and drafts well at the first position only",
    ),
    False: (
        "info",
        "after PR 879 (2026-09-15) it says what engines do; a drafter trained before it gave the head states without "
        "the final norm, which engines apply",
    ),
}


def without_embedding(spec: DrafterSpec) -> Findings:
    """An EAGLE-3 layer that reads no token, as ModelOpt trains one without aux states."""
    width, hidden = spec.clues.first_layer_input, spec.architecture.hidden_size
    if spec.kind.name == "eagle3_noaux" and width is not None and width == hidden:
        first = next(tensor for name, tensor in spec.clues.tensors.items() if name.startswith("layers.0.self_attn.q_"))
        yield Finding(
            "MODELOPT-NO-STATES",
            "error",
            f"its first attention reads {width}, the state alone, and no token",
            "engines join the embedding and the state and do not load it",
            key=first.name,
            file=first.file,
            evidence={"attention_input": width, "hidden_size": hidden},
        )


def modelopt(spec: DrafterSpec) -> Findings:
    """That the trainer norms twice was run with release 0.47.0; what it costs in acceptance nobody has published."""
    if spec.dialect.name != "modelopt" or spec.kind.name not in _LAYERS:
        return
    if not spec.clues.has_weights or "layers.0.input_layernorm.weight" in spec.clues.tensors:
        yield Finding(
            "MODELOPT-2NORM",
            "info",
            f"a {_LAYERS[spec.kind.name]} drafter of ModelOpt's: since December 2025 its trainer norms the fused state "
            "twice in layer 0",
            "engines norm it once, with hidden_norm",
            key="layers.0.input_layernorm.weight",
            file=spec.table.files[0] if spec.table and spec.table.files else "weights",
        )
    if spec.architecture.norm_before_residual:
        yield Finding(
            "MODELOPT-VLLM",
            "warning",
            "norm_before_residual is true in a drafter of ModelOpt's",
            "its trainer adds the state before the norm; vLLM and llama.cpp then add the normed one",
            key="norm_before_residual",
            fix_set={"norm_before_residual": False},
        )


def skipped_fc(spec: DrafterSpec) -> Findings:
    shape = spec.clues.shape("fc.weight")
    if spec.kind.traits.fuses and shape is not None and len(shape) == 2 and shape[0] == shape[1]:
        yield Finding(
            "FC-SKIP",
            "error",
            f"fc reads {shape[1]}, as wide as the drafter",
            "EAGLE, SGLang and TensorRT-LLM run fc only where the widths differ, and leave it out here; vLLM runs it",
            key="fc.weight",
            file=spec.clues.tensors["fc.weight"].file,
            evidence={"fc": list(shape)},
        )


def promised(spec: DrafterSpec) -> Findings:
    """A record that holds a part of a config proves no key absent."""
    name, arch = _name(spec), spec.architecture
    if spec.kind.name not in _EAGLE3 or (spec.source == "bundled" and not registry.load(spec.ref).config_complete):
        return
    lacks = ""
    if _EAGLE31.search(name) and not (arch.fc_norm or arch.norm_output or arch.norm_before_fc):
        lacks = "EAGLE-3.1, and no fc_norm, norm_output or norm_before_fc is on"
    elif _PEAGLE.search(name) and spec.kind.name != "peagle":
        lacks = "P-EAGLE, and there is no mask_hidden and no parallel_drafting"
    if lacks:
        yield Finding(
            "FEATURE-NAME",
            "info",
            f"its name says {lacks}",
            "it is a plain EAGLE-3 drafter, and drafts as one",
            key=None,
            evidence={"name": name},
        )


def detected(spec: DrafterSpec) -> Findings:
    """vLLM looks for substrings in the model's name; a speculators config names the method itself."""
    name = _name(spec)
    if spec.kind.name in _EAGLE3 and spec.dialect.name != "speculators" and "eagle-" in name.lower():
        yield Finding(
            "NAME-DETECT",
            "info",
            f"the name {name} holds eagle-",
            'without a method vLLM takes it for an EAGLE-1 drafter: give "method": "eagle3" in --speculative-config',
            key=None,
            evidence={"name": name},
        )


def _name(spec: DrafterSpec) -> str:
    """The repository's id, of a local folder its own name alone: how it is reached may change."""
    return spec.name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] if spec.source == "local" else spec.name
