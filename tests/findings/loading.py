"""Cases of audit/rules/loading.py."""

from __future__ import annotations

from tests.checkpoints import Tensors, kimi_tensors
from tests.findings.case import Case
from tests.findings.drafters import HIDDEN, kimi, peer, renamed

_DEEPER: Tensors = {
    name.replace("midlayer.", "layers.1."): (dtype, (shape[0], HIDDEN) if shape[-1] == 2 * HIDDEN else shape)
    for name, (dtype, shape) in kimi_tensors().items()
    if name.startswith("midlayer.") and "hidden_norm" not in name
}

CASES = (
    Case("ARCH-NAME", fires=kimi(architectures=["LlamaForCausalLM"]), silent=kimi()),
    # Names of other trainers' classes, which engines know too.
    Case(
        "ARCH-NAME",
        fires=peer("modelopt_eagle3_kimik2", architectures=["DeepseekV3ForCausalLM"]),
        silent=peer("modelopt_eagle3_kimik2"),
    ),
    # NeMo's names, and those of all others.
    Case(
        "PREFIX",
        fires=kimi(left_out=kimi_tensors(), added=renamed(kimi_tensors(), "midlayer.", "model.layers.0.")),
        silent=kimi(left_out=kimi_tensors(), added=renamed(kimi_tensors(), "midlayer.", "layers.0.")),
    ),
    Case("MULTI-LAYER", fires=kimi(added=_DEEPER, num_hidden_layers=2), silent=kimi()),
    # Null stands for absent elsewhere.
    Case("CONFIG-NULL", fires=kimi(target_hidden_size=None), silent=kimi(rope_scaling=None)),
    Case("CONFIG-NULL", fires=kimi(use_cache=None), silent=kimi(use_cache=False)),
    # speculators writes this null itself, and vLLM converts it.
    Case("CONFIG-NULL", fires=kimi(target_hidden_size=None), silent=peer("speculators_eagle3")),
)
