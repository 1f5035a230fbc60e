"""The target: a Llama of twelve narrow layers, trained to answer the tasks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from reference_models.tiny.training.batches import batches, sample_rows
from reference_models.tiny.training.optimiser import Optimiser

LAYERS, HIDDEN = 12, 128
STEPS, BATCH = 1700, 16
_PROMPT_WEIGHT = 0.1
_APART = 0.7  # the cosine of neighbouring states that costs nothing
_APART_WEIGHT = 1.0

Log = Callable[[dict[str, float]], None]


def config() -> LlamaConfig:
    """The target's shape: head_dim 32, the least that vLLM's CPU build runs."""
    return LlamaConfig(
        vocab_size=1024,
        hidden_size=HIDDEN,
        intermediate_size=320,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )


def train(tokenizer: PreTrainedTokenizerFast, apart: frozenset[str], log: Log, steps: int = STEPS) -> LlamaForCausalLM:
    """A target of `steps` steps, its weights as bfloat16 holds them, kept as float32."""
    torch.manual_seed(11)
    model = LlamaForCausalLM(config())
    optimiser = Optimiser(model.named_parameters(), rate=0.02, table_rate=0.004, steps=steps)
    rows = sample_rows(tokenizer, steps * BATCH, 2, apart)
    for step, (ids, mask) in enumerate(batches(rows, BATCH, 3), 1):
        output = model(input_ids=ids, use_cache=False, output_hidden_states=True)
        text, alike = text_loss(output.logits, ids, mask), likeness(output.hidden_states)
        optimiser.step(text + _APART_WEIGHT * functional.relu(alike - _APART).mean())
        if step % 20 == 0:
            log({"step": step, "loss": text.item(), "likeness": alike.mean().item()})
    return rounded(model)


def text_loss(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Cross entropy of the answers' tokens, and with a lower weight of the prompts'."""
    each = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weight = torch.where(mask, 1.0, _PROMPT_WEIGHT).masked_fill(ids == 0, 0.0)[:, 1:].flatten()
    return (each * weight).sum() / weight.sum()


def likeness(states: tuple[Tensor, ...]) -> Tensor:
    """The mean cosine of each boundary's states with the next one's [layers - 1]; the last is behind the norm."""
    pairs = pairwise(states[:-1])
    return torch.stack([functional.cosine_similarity(one, other, dim=-1).mean() for one, other in pairs])


@torch.no_grad()
def rounded(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same model with each weight at the nearest number that bfloat16 has."""
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16().float())
    return model.requires_grad_(False)


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """config.json, generation_config.json and weights in bfloat16, which `model` has afterwards."""
    model.bfloat16().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
