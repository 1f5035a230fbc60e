"""Oracles from speculators 0.9.0: `Eagle3DraftModel` and its own unrolled forward, unchanged, on CPU in float32.

python3.11 -m venv speculators && . speculators/bin/activate
pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0
pip install torch==2.13.0 transformers==5.19.0 datasets loguru openai pydantic-settings aiohttp httpx
TORCHDYNAMO_DISABLE=1 python tests/oracles/scripts/speculators_eagle3.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from common import (
    DRAFT_VOCAB,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    STEPS,
    VOCAB,
    fill,
    fresh,
    random_states,
    random_tokens,
    set_vocabulary,
    write_oracle,
)
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from transformers import LlamaConfig, PretrainedConfig, Qwen3Config

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@dataclass(frozen=True)
class Case:
    """`flags` of the drafter's config, `layer` settings of its transformer layers, `ids` of the target's states."""

    name: str
    flags: dict[str, Any] = field(default_factory=dict)
    layer: dict[str, Any] = field(default_factory=dict)
    ids: tuple[int, ...] = (2, 4, 5)
    layer_class: type[PretrainedConfig] = LlamaConfig
    draft_vocab: int = DRAFT_VOCAB


CASES = (
    Case("plain", {"norm_before_residual": False}),
    Case("norm_before_residual", {"norm_before_residual": True}),
    Case("norm_before_fc", {"norm_before_fc": True}),
    Case("fc_norm", {"fc_norm": True}),
    Case("norm_output", {"norm_output": True}),
    Case("all_norms_whole", {"norm_before_residual": True, "norm_before_fc": True, "norm_output": True}),
    Case("all_norms_per_state", {"norm_before_residual": True, "fc_norm": True, "norm_output": True}),
    Case("four_states", {"fc_norm": True}, ids=(0, 2, 4, 5)),
    Case("two_layers", {"norm_before_residual": True}, {"num_hidden_layers": 2}),
    Case("qwen3", layer_class=Qwen3Config),
    Case("qwen3_two_layers", {"norm_output": True}, {"num_hidden_layers": 2}, layer_class=Qwen3Config),
    Case("biases", layer={"attention_bias": True, "mlp_bias": True}),
    Case("llama3_rope", layer={"rope_parameters": LLAMA3}),
    Case("yarn_rope", layer={"rope_parameters": YARN}),
    Case("full_vocabulary", draft_vocab=VOCAB),
)


def drafter_of(case: Case) -> Eagle3DraftModel:
    layer = case.layer_class(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        **{"num_hidden_layers": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **case.layer},
    )
    layer._attn_implementation = "eager"
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=case.draft_vocab,
        eagle_aux_hidden_state_layer_ids=list(case.ids),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
        ),
        **case.flags,
    )
    return Eagle3DraftModel(config).float().eval()


@torch.no_grad()
def logits_of(drafter: Eagle3DraftModel, tokens: Tensor, states: Tensor) -> Tensor:
    """[steps, T, draft_vocab], as the head gives them in the peer's own forward."""
    logits: list[Tensor] = []
    hook = drafter.lm_head.register_forward_hook(lambda module, inputs, output: logits.append(output[0].clone()))
    features = torch.cat(list(states), dim=-1)[None]
    ids = tokens[None]
    drafter(hidden_states=features, input_ids=ids, document_ids=torch.zeros_like(ids), ttt_steps=STEPS)
    hook.remove()
    return torch.stack(logits)


def make(seed: int, case: Case) -> None:
    torch.manual_seed(seed)
    drafter = drafter_of(case)
    fill(drafter.named_parameters())
    if case.draft_vocab != VOCAB:
        set_vocabulary(drafter)
    tokens, states = random_tokens(), random_states(len(case.ids), HIDDEN)
    logits = logits_of(drafter, tokens, states)
    folder = fresh(f"speculators_{case.name}")
    drafter.save_pretrained(folder)
    (folder / "config.py").unlink()  # the peer's source, which it saves beside the weights
    write_oracle(
        folder,
        {"input_ids": tokens, "states": states, "logits": logits, "target_embedding": drafter.embed_tokens.weight},
        peer="speculators",
        version="0.9.0",
        computed_by="speculators.models.eagle3.core.Eagle3DraftModel.forward, eager attention",
        flags=case.flags,
        differs={},
        positions="the pair at t has position 1 + t + k in step k",
        end="past the end the token is 0; every position is comparable",
        shift="input_ids[t] is one ahead of the token whose state is states[:, t]",
    )


if __name__ == "__main__":
    for seed, each in enumerate(CASES):
        make(100 + seed, each)
