"""A recording of the reference target: held-out prompts of all kinds, every boundary, every logit."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from drafter_audit.model.target.load import load_target
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.make import Settings, record
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.recording import Recording
from reference_models.tiny.training.recordings import spread

ROOT = Path(__file__).resolve().parents[1]
HELD_OUT = ROOT / "tests/data/prompts/held_out.jsonl"
COUNT, LONGEST = 20, 64


def record_tiny(folder: Path) -> Recording:
    """Every second prompt with a thought."""
    target = load_target("tiny-target")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "reference_models/tiny/target")
    prompts = [
        TokenPrompt(str(place), str(row["category"]), tuple(_tokens(tokenizer, row, thinking=place % 2 == 0)))
        for place, row in enumerate(spread(HELD_OUT, COUNT))
    ]
    every = tuple(range(target.num_layers + 1))
    record(target, prompts, folder, Settings(every, max_new_tokens=LONGEST, top=target.vocab_size))
    return open_recording(folder)


def _tokens(tokenizer, row, *, thinking):
    asked = {"add_generation_prompt": True, "return_dict": False, "enable_thinking": thinking}
    return tokenizer.apply_chat_template(row["messages"], **asked)
