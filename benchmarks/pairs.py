"""Targets with drafters and prompts, to be decoded in benchmarks: the bundled pair, and pairs of any size at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.network import write_checkpoint
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.load import load_drafter
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.tokenizer import load_tokenizer
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.prompts.read import read_prompts
from drafter_audit.prompts.render import render

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

HIDDEN, INNER, HEADS, VOCABULARY, DRAFT_VOCABULARY, POSITIONS = 512, 1408, 8, 8192, 2048, 2048


@dataclass(frozen=True)
class Pair:
    drafter: Drafter
    target: TargetModel
    prompts: tuple[TokenPrompt, ...]


def bundled_pair(count: int) -> Pair:
    """The pair in reference_models/tiny, beside `count` prompts of the pack, one of each category in turn."""
    target, tokenizer = load_target("tiny-target"), load_tokenizer("tiny-target")
    given = render(
        read_prompts(None),
        tokenizer and tokenizer.tokenizer,
        thinking=None,
        raw=False,
        vocab_size=target.vocab_size,
        max_positions=None,
        max_new_tokens=0,
    )
    return Pair(load_drafter("tiny"), target, given[:: len(given) // count][:count])


def random_pair(folder: Path, layers: int, lengths: Sequence[int]) -> Pair:
    """A Llama of 8 `layers` or more of width 512 beside an EAGLE-3 drafter, both with random weights: drafts are hardly
    ever right, and no answer ends before its limit. A prompt of each of the `lengths`, in tokens."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
    }
    random_llama(layers, sizes).save_pretrained(folder / "target")
    (folder / "drafter").mkdir()
    write_checkpoint(folder / "drafter", draft_vocab_size=DRAFT_VOCABULARY, **sizes)
    ids = [torch.randint(3, VOCABULARY, (length,)).tolist() for length in lengths]
    prompts = tuple(TokenPrompt(str(place), None, tuple(each)) for place, each in enumerate(ids))
    target = str(folder / "target")
    return Pair(load_drafter(str(folder / "drafter"), target=target), load_target(target), prompts)


def random_llama(layers: int, sizes: Mapping[str, Any]) -> LlamaForCausalLM:
    """One with random weights, which knows no token that ends an answer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    no_ends: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, tie_word_embeddings=False, **sizes, **no_ends))
