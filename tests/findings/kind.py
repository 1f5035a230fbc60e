"""Cases of audit/rules/kind.py."""

from __future__ import annotations

from tests.checkpoints import Tensors, kimi_tensors, read_peer
from tests.findings.case import Case
from tests.findings.drafters import checkpoint, kimi, renamed

_LM_CONFIG, _LM, _ = read_peer("tiny_llama")
_HEADS: Tensors = {f"head.{i}.weight": ("BF16", (64, 64)) for i in range(3)}
_PLAIN = {**_LM_CONFIG, "architectures": ["LlamaForCausalLM"]}
_NO_MARK = renamed(kimi_tensors(), "midlayer.", "layers.0.")

CASES = (
    # A model type that no library knows yet is no hindrance: the tensors tell the kind.
    Case("KIND-UNKNOWN", fires=checkpoint({"model_type": "new"}, _HEADS), silent=kimi(model_type="kimi_k99")),
    # A plain class name alone is none either: ARCH-NAME speaks of that.
    Case(
        "NOT-A-DRAFTER",
        fires=checkpoint({**_PLAIN, "draft_vocab_size": 128}, _LM),
        silent=kimi(architectures=["LlamaForCausalLM"]),
    ),
    Case("NOT-A-DRAFTER", fires=checkpoint({**_PLAIN, "eagle_layer_ids": [1]}, _LM), silent=checkpoint(_PLAIN, _LM)),
    Case(
        "DIALECT-UNKNOWN",
        fires=kimi(left_out=kimi_tensors(), added=_NO_MARK),
        silent=kimi(left_out=kimi_tensors(), added=_NO_MARK, eagle_config={"next_layer_regular": True}),
    ),
)
