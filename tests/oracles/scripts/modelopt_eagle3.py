"""Oracles from NVIDIA ModelOpt 0.47.0: a converted target in its own training forward, on CPU in float32.

    python3.11 -m venv modelopt && . modelopt/bin/activate
    pip install torch==2.13.0 transformers==5.8.1 tokenizers==0.22.2 'huggingface_hub<2' requests
    pip install nvidia-modelopt==0.47.0
    TORCHDYNAMO_DISABLE=1 python tests/oracles/scripts/modelopt_eagle3.py

In its step k the peer keeps positions and moves the layer's output one to the right, so the pair that started at t
stands at t + k; logits are moved back here. Nothing is computed past the end.

Its MLA drafters take their layer from a file of moonshotai/Kimi-K2-Instruct. Here transformers' own DeepSeek-V3 layer,
which has the same tensors, is put in its place: these oracles are not ModelOpt alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import modelopt.torch.speculative as speculative
import torch
from common import (
    DRAFT_VOCAB,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    STEPS,
    TOKENS,
    VOCAB,
    fill,
    fresh,
    set_vocabulary,
    write_oracle,
)
from modelopt.torch.export.plugins.hf_spec_export import EagleExporter
from modelopt.torch.speculative.plugins import hf_eagle
from torch import Tensor, nn
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

LAYERS, AUX_LAYERS = 8, [1, 3, 4]  # the outputs of these layers: boundaries 2, 4, 5
SECOND_NORM = {"hidden_norm": "input_layernorm_then_hidden_norm"}

LLAMA = {
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "torch_dtype": "float32",
    "draft_vocab_size": DRAFT_VOCAB,
    "has_lm_head": True,
    "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
}
RANKS = {"kv_lora_rank": 12, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
YARN = {"type": "yarn", "rope_type": "yarn", "rope_theta": 50000.0, "original_max_position_embeddings": 64}
KIMI_YARN = {**YARN, "factor": 8.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
OTHER_YARN = {**YARN, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.3}
EXPORTED_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048}
KIMI = {
    **RANKS,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "first_k_dense_replace": 2,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "draft_vocab_size": DRAFT_VOCAB,
    "has_lm_head": True,
    "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
    "rope_scaling": KIMI_YARN,
}


@dataclass(frozen=True)
class Case:
    """`kind`: the peer's word for the layer. `arch`: its settings. `export_rope`: what the peer writes in place of
    plain rope. `differs`: the knobs in which the peer's numbers are not what its config says to an engine. `checked`:
    False where the exporter's list of names refuses the drafter, and only that list is passed over. `uniform`: layer
    0's input_layernorm is all ones."""

    name: str
    kind: str = "llama"
    arch: dict[str, Any] = field(default_factory=dict)
    export_rope: dict[str, Any] = field(default_factory=dict)
    differs: dict[str, Any] = field(default_factory=lambda: dict(SECOND_NORM))
    checked: bool = True
    uniform: bool = False


WHOLE = {"draft_vocab_size": VOCAB}
CASES = (
    Case("plain"),
    Case("uniform_input_norm", differs={}, uniform=True),
    Case("four_states", arch={"eagle_aux_hidden_state_layer_ids": [1, 3, 4, 7]}),
    Case("two_layers", arch={"num_hidden_layers": 2}),
    Case("biases", arch={"attention_bias": True, "mlp_bias": True}),
    Case("own_full_head", arch=WHOLE),
    Case("target_head", arch={**WHOLE, "has_lm_head": False}),
    Case("exported_yarn", export_rope=EXPORTED_YARN, differs={**SECOND_NORM, "rope_scaling": None}),
    Case("no_states", arch={"use_aux_hidden_state": False}, differs={}),
    Case("mla", "kimik2"),
    Case("mla_other_yarn", "kimik2", {"rope_scaling": OTHER_YARN}),
    Case("mla_no_q_lora", "kimik2", {"q_lora_rank": None}, checked=False),
    Case("mla_two_layers", "kimik2", {"num_hidden_layers": 2}),
)


class DeepseekV3Attention(deepseek.DeepseekV3Attention):
    """Of that name: ModelOpt knows the projections to widen by it."""


class DeepseekLayer(deepseek.DeepseekV3DecoderLayer):
    """In place of Kimi-K2's layer, which makes its own rope from the positions."""

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        kwargs.pop("output_attentions", None)
        rope = deepseek.DeepseekV3RotaryEmbedding(self.self_attn.config)
        kwargs["position_embeddings"] = rope(hidden_states, kwargs["position_ids"])
        return super().forward(hidden_states, **kwargs)


def target_of(kind: str) -> nn.Module:
    common = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "initializer_range": 0.15}
    heads = {"intermediate_size": INTERMEDIATE, "num_attention_heads": HEADS, "max_position_embeddings": 256}
    if kind == "llama":
        config = LlamaConfig(**common, **heads, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM)
        return LlamaForCausalLM(config)
    config = DeepseekV3Config(**common, **heads, **RANKS, num_key_value_heads=HEADS, first_k_dense_replace=LAYERS)
    return DeepseekV3ForCausalLM(config)


def drafter_of(case: Case) -> nn.Module:
    """The target with the peer's drafter at it, as `eagle_module`."""
    base = LLAMA if case.kind == "llama" else KIMI
    config = {
        "eagle_decoder_type": case.kind,
        "eagle_architecture_config": {**base, **case.arch},
        "eagle_use_torch_compile": False,
        "eagle_ttt_steps": STEPS,
        "eagle_export_rope_scaling": case.export_rope,
    }
    target = target_of(case.kind).float()
    fill((name, weight) for name, weight in target.named_parameters() if "norm" in name)
    return speculative.convert(target, [("eagle", config)])


@torch.no_grad()
def run(model: nn.Module, sequence: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What enters the drafter, [T, width], and its logits at each step, [T, draft_vocab]: in the peer's own forward."""
    entered: list[Tensor] = []
    logits: list[Tensor] = []
    step = model._eagle_forward

    def watched(*args: Any) -> Any:
        entered.append(args[0][0])
        result = step(*args)
        logits.append(result[2][0])
        return result

    model._eagle_forward = watched
    if hasattr(model.eagle_module, "fc"):
        model.eagle_module.fc.register_forward_pre_hook(lambda module, inputs: entered.append(inputs[0][0]))
    model.train()(input_ids=sequence[None])
    return entered[0], logits


def moved_back(logits: list[Tensor]) -> Tensor:
    """[steps, T, draft_vocab]: step k by k to the left, zero where the peer has nothing."""
    rows = [torch.cat((step[k:], torch.zeros_like(step[:k]))) for k, step in enumerate(logits)]
    return torch.stack(rows)


def save(model: nn.Module, folder: str, *, checked: bool) -> None:
    exporter = EagleExporter(model)
    if not checked:
        exporter._check_valid_sd = lambda tensors: None
    exporter.export(folder)


def make(seed: int, case: Case) -> None:
    torch.manual_seed(seed)
    model = drafter_of(case)
    fill(model.eagle_module.named_parameters())
    if case.uniform:
        nn.init.ones_(model.eagle_module.layers[0].input_layernorm.weight)
    if hasattr(model.eagle_module, "d2t"):
        set_vocabulary(model.eagle_module)
    sequence = torch.randint(3, VOCAB, (TOKENS,))
    entered, logits = run(model, sequence)
    folder = fresh(f"modelopt_{case.name}")
    save(model, str(folder), checked=case.checked)
    own = hasattr(model.eagle_module, "lm_head")
    borrowed = {} if own else {"target_head": model._base_model_lm_head.weight}
    write_oracle(
        folder,
        {
            "input_ids": sequence.roll(-1),
            "states": torch.stack(entered.split(HIDDEN, dim=-1)),
            "logits": moved_back(logits),
            "valid": torch.arange(TOKENS, TOKENS - STEPS, -1),
            "target_embedding": model._base_model_embeddings.weight,
            **borrowed,
        },
        peer="nvidia-modelopt",
        version="0.47.0",
        computed_by="modelopt.torch.speculative.plugins.hf_eagle.HFEagleModel.forward, in training"
        + ("" if case.kind == "llama" else "; layers: transformers 5.8.1 DeepseekV3DecoderLayer"),
        flags=case.arch,
        differs=case.differs,
        positions="the pair at t has position t + k in step k",
        end="the peer computes nothing past the end: in step k the first valid[k] positions are comparable",
        shift="input_ids[t] is one ahead of the token whose state is states[:, t]; the last is the sequence's first",
    )


if __name__ == "__main__":
    hf_eagle._setup_kimi_k2_decoder = lambda: DeepseekLayer
    deepseek.DeepseekV3Attention = DeepseekV3Attention
    for seed, each in enumerate(CASES):
        make(300 + seed, each)
