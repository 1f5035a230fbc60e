"""Oracles from SpecForge 0.2.0: `LlamaForCausalLMEagle3` in its own training loop, on CPU in float32.

    python3.11 -m venv specforge && . specforge/bin/activate
    pip install --no-deps specforge==0.2.0
    pip install torch==2.13.0 transformers==5.8.1 accelerate datasets pydantic pyyaml tqdm psutil
    TORCHDYNAMO_DISABLE=1 python tests/oracles/scripts/specforge_eagle3.py

Its loss is a triton kernel, which no CPU runs. An empty module stands for triton while the loss is imported, and the
loop is given the peer's own reference of that loss; logits are taken before it.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
import warnings
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
from torch import Tensor
from transformers import LlamaConfig


def stand_in(name: str, **contents: object) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(contents)
    return module


warnings.filterwarnings("ignore", message="flash_attn is not found")
LANGUAGE = stand_in("triton.language", constexpr=int)
TRITON = stand_in("triton", jit=lambda kernel: kernel, language=LANGUAGE)
sys.modules |= {"triton": TRITON, "triton.language": LANGUAGE}
from specforge.core import loss  # noqa: E402

del sys.modules["triton"], sys.modules["triton.language"]
from specforge.algorithms.eagle3 import model as training  # noqa: E402
from specforge.export.checkpoint_io import apply_legacy_rope_scaling  # noqa: E402
from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3  # noqa: E402

training.LogSoftmaxLoss = types.SimpleNamespace(apply=loss._compute_loss)

ROPE = {"rope_theta": 10000.0, "original_max_position_embeddings": 64}
LLAMA3 = {**ROPE, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}
YARN = {**ROPE, **BETAS, "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.0}
YARN_MSCALE = {**YARN, "rope_theta": 50000.0, "mscale": 0.7, "mscale_all_dim": 0.3}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}


@dataclass(frozen=True)
class Case:
    """`flags` of the config. `embedding`: exported as for Hugging Face, with the target's embedding, or as for SGLang,
    without. `target_hidden`: the width of the target's states; one of another width cannot lend its embedding.
    `differs`: the knobs in which the peer's numbers are not what its config says to an engine."""

    name: str
    flags: dict[str, Any] = field(default_factory=dict)
    embedding: bool = False
    target_hidden: int = HIDDEN
    draft_vocab: int = DRAFT_VOCAB
    differs: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case("plain", embedding=True),
    Case("norm_output_true", {"norm_output": True}, differs={"feedback": "pre_norm"}),
    Case("norm_output_false", {"norm_output": False}, differs={"final_norm": False}),
    Case("fc_norm", {"fc_norm": True}),
    Case("llama3_rope", {"rope_parameters": LLAMA3}),
    Case("yarn_rope", {"rope_parameters": YARN}),
    Case("yarn_rope_mscale", {"rope_parameters": YARN_MSCALE}),
    Case("linear_rope", {"rope_parameters": LINEAR}),
    Case("wide_target", {"fc_norm": True, "target_hidden_size": 56}, embedding=True, target_hidden=56),
    Case("full_vocabulary", draft_vocab=VOCAB),
)


def drafter_of(case: Case) -> LlamaForCausalLMEagle3:
    """Built from its config: `from_pretrained` leaves the tables of rope uninitialised."""
    config = LlamaConfig(
        architectures=["LlamaForCausalLMEagle3"],
        vocab_size=VOCAB,
        draft_vocab_size=case.draft_vocab,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        pad_token_id=0,
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **case.flags},
    )
    return LlamaForCausalLMEagle3(config, attention_backend="sdpa").float().eval()


@torch.no_grad()
def logits_of(drafter: LlamaForCausalLMEagle3, tokens: Tensor, states: Tensor) -> Tensor:
    """[steps, T, draft_vocab], as the peer's training loop computes them."""
    logits: list[Tensor] = []
    hook = drafter.lm_head.register_forward_hook(lambda module, inputs, output: logits.append(output[0].clone()))
    ids, everywhere = tokens[None], torch.ones(1, len(tokens), dtype=torch.long)
    training.OnlineEagle3Model(drafter, length=STEPS, attention_backend="sdpa")(
        input_ids=ids,
        attention_mask=everywhere,
        target=torch.zeros(1, len(tokens), VOCAB),
        loss_mask=everywhere[..., None],
        hidden_states=torch.cat(list(states), dim=-1)[None],
    )
    hook.remove()
    return torch.stack(logits)


def save(drafter: LlamaForCausalLMEagle3, folder: str, *, embedding: bool) -> None:
    """As the peer's exporters do, but in float32: `export/to_hf.py` keeps the embedding, `export/to_sglang.py` not."""
    state = {name: value for name, value in drafter.state_dict().items() if embedding or "embed" not in name}
    drafter.save_pretrained(folder, state_dict=state)
    apply_legacy_rope_scaling(folder)


def make(seed: int, case: Case) -> None:
    torch.manual_seed(seed)
    drafter = drafter_of(case)
    fill(drafter.named_parameters())
    if case.draft_vocab != VOCAB:
        set_vocabulary(drafter)
    tokens, states = random_tokens(), random_states(3, case.target_hidden)
    logits = logits_of(drafter, tokens, states)
    folder = fresh(f"specforge_{case.name}")
    save(drafter, str(folder), embedding=case.embedding)
    lent = {"target_embedding": drafter.embed_tokens.weight} if case.target_hidden == HIDDEN else {}
    write_oracle(
        folder,
        {"input_ids": tokens, "states": states, "logits": logits, **lent},
        peer="specforge",
        version="0.2.0",
        computed_by="specforge.algorithms.eagle3.model.OnlineEagle3Model.forward, backend sdpa",
        flags=case.flags,
        differs=case.differs,
        positions="the pair at t has position t + k in step k",
        end="past the end the token is 0; every position is comparable",
        shift="input_ids[t] is one ahead of the token whose state is states[:, t]",
    )


if __name__ == "__main__":
    for seed, each in enumerate(CASES):
        make(200 + seed, each)
