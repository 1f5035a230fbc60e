"""Cases of audit/rules/settings.py."""

from __future__ import annotations

from tests.checkpoints import LLAMA_1_LAYER, Tensors, eagle1_tensors
from tests.findings.case import Case
from tests.findings.drafters import HIDDEN, checkpoint, kimi, peer

_INPUT_NORM: Tensors = {"input_norm.weight": ("BF16", (3 * HIDDEN,))}
_LEGACY: Tensors = {f"aux_norm_{place}.weight": ("BF16", (HIDDEN,)) for place in ("low", "mid", "high")}
_BIASES: Tensors = {f"midlayer.self_attn.{name}_proj.bias": ("BF16", (8192,)) for name in "qkv"}
_FC_BIAS: Tensors = {"fc.bias": ("BF16", (HIDDEN,))}

CASES = (
    Case("NORM-FLAG", fires=kimi(added=_INPUT_NORM), silent=kimi(added=_INPUT_NORM, norm_before_fc=True)),
    # SGLang's older spelling of both the switch and the norms.
    Case("NORM-FLAG", fires=kimi(fc_norm=True), silent=kimi(added=_LEGACY, use_aux_norm=True)),
    Case(
        "RES-DEFAULT",
        fires=peer("speculators_eagle3", norm_before_residual=None),
        silent=peer("speculators_eagle3"),
    ),
    # P-EAGLE, for which both readers take false.
    Case(
        "RES-DEFAULT",
        fires=peer("speculators_eagle3", norm_before_residual=None),
        silent=peer("speculators_eagle3", norm_before_residual=None, speculators_model_type="peagle"),
    ),
    # Outside speculators' format all readers take false.
    Case("RES-DEFAULT", fires=peer("speculators_converted", norm_before_residual=None), silent=kimi()),
    Case("BIAS-FLAG", fires=kimi(added=_BIASES), silent=kimi(added=_BIASES, attention_bias=True)),
    Case("BIAS-FLAG", fires=kimi(added=_FC_BIAS, bias=False), silent=kimi(added=_FC_BIAS, bias=True)),
    # An EAGLE-1 drafter with the bias that its authors train, and vLLM's switch for it.
    Case(
        "BIAS-FLAG",
        fires=checkpoint(LLAMA_1_LAYER, eagle1_tensors()),
        silent=checkpoint({**LLAMA_1_LAYER, "eagle_fc_bias": True}, eagle1_tensors()),
    ),
    # Off in the section that engines read, stored all the same: the nested switch wins over the one at the top.
    Case(
        "NORM-FLAG",
        fires=kimi(added=_INPUT_NORM, eagle_config={"norm_before_fc": False}),
        silent=kimi(added=_INPUT_NORM, eagle_config={"norm_before_fc": True}, norm_before_fc=False),
    ),
    Case("DTYPE", fires=kimi(dtype=None, torch_dtype="float16"), silent=kimi()),
    Case("DTYPE", fires=kimi(dtype="float16"), silent=kimi(dtype=None, torch_dtype="torch.bfloat16")),
    # One setting in both layouts is what SpecForge exports.
    Case(
        "ROPE-CONFLICT",
        fires=kimi(rope_parameters={"rope_theta": 5e6, "rope_type": "default"}),
        silent=kimi(rope_parameters={"rope_theta": 1e6, "rope_type": "default"}),
    ),
    Case(
        "ROPE-DEFAULT",
        fires=kimi(rope_theta=None),
        silent=kimi(rope_theta=None, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}),
    ),
)
