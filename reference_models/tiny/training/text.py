"""Texts from tasks: what the target is trained on, and the prompts that are kept apart from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from reference_models.tiny.training.tasks import CATEGORIES, Task

_ROOT = Path(__file__).resolve().parents[3]
PACK = _ROOT / "drafter_audit" / "prompts" / "pack.jsonl"
HELD_OUT = _ROOT / "tests" / "data" / "prompts" / "held_out.jsonl"
_SETS = ((PACK, 12, 101), (HELD_OUT, 30, 202))  # file, prompts in each category, seed


@dataclass(frozen=True)
class Sample:
    """A task of a category, to be answered with or without a thought before it."""

    category: str
    task: Task
    thinking: bool


def samples(count: int, seed: int, apart: frozenset[str]) -> list[Sample]:
    """`count` samples, categories in turn, every second of each with a thought; none has a prompt of `apart`."""
    drawn = _drawn(seed, apart)
    return [next(drawn) for _ in range(count)]


def held_out() -> frozenset[str]:
    """Every prompt that no training may see."""
    return frozenset(row["messages"][0]["content"] for path, _, _ in _SETS for row in read_rows(path))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def prompt_files() -> dict[Path, str]:
    """The prompt pack and the tests' prompts, as JSONL; no prompt occurs twice in them."""
    seen: set[str] = set()
    return {path: _jsonl(each, seed, seen) for path, each, seed in _SETS}


def _jsonl(each: int, seed: int, seen: set[str]) -> str:
    rows = []
    for category, draw in CATEGORIES.items():
        rng, kept = Random(f"{seed} {category}"), list[str]()
        while len(kept) < each:
            prompt = draw(rng).prompt
            if prompt not in seen:
                seen.add(prompt)
                kept.append(prompt)
        rows += [_row(f"{category}-{place:02}", category, prompt) for place, prompt in enumerate(kept, 1)]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _row(name: str, category: str, prompt: str) -> dict[str, Any]:
    return {"id": name, "category": category, "messages": [{"role": "user", "content": prompt}]}


def _drawn(seed: int, apart: frozenset[str]) -> Iterator[Sample]:
    rng = Random(seed)
    while True:
        for thinking in (False, True):
            for category, draw in CATEGORIES.items():
                task = draw(rng)
                if task.prompt not in apart:
                    yield Sample(category, task, thinking)
