"""Builds the pair, or some of it: python -m reference_models.tiny.training [--to FOLDER] [STAGE ...].

Each stage reads what those before it have written: `prompts` the prompt files, `target` tokenizer and target, `drafter`
the drafter, `measures` tables, plots and README. Seeds, counts of steps and threads are fixed: one machine gives
the same bytes each time.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from operator import eq
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from reference_models.tiny.training import batches, drafter, report, target, text, tokenizer
from reference_models.tiny.training.answers import ANSWERS, END, LONGEST, answer

HERE = Path(__file__).resolve().parents[1]


class CsvLog:
    """One row for each call, kept in a file and said aloud with the processor's seconds so far."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._rows = path, list[dict[str, float]]()

    def __call__(self, row: dict[str, float]) -> None:
        shown = {name: f"{value:.4f}" if isinstance(value, float) else value for name, value in row.items()}
        print(f"{time.process_time():7.0f} s", self._path.stem, shown, flush=True)
        self._rows.append(row)
        with self._path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: f"{value:.5g}" for name, value in each.items()} for each in self._rows)


def build_prompts(_: Path) -> None:
    """The prompt pack and the tests' prompts, where they lie."""
    for path, rows in text.prompt_files().items():
        path.write_text(rows, encoding="utf-8")


def build_target(folder: Path) -> None:
    """`folder`/target: tokenizer and target, from nothing."""
    apart = text.held_out()
    words = tokenizer.train(folder / "target", apart)
    model = target.train(words, apart, CsvLog(folder / "log" / "target.csv"))
    target.save(model, folder / "target")


def build_drafter(folder: Path) -> None:
    """`folder`/drafter, from the target's own answers to prompts that were not used before."""
    words: Any = AutoTokenizer.from_pretrained(folder / "target")
    model = LlamaForCausalLM.from_pretrained(folder / "target", dtype=torch.float32)
    asked = batches.sample_rows(words, ANSWERS, 4, text.held_out())
    rows = answer(model, [prompt for prompt, _ in asked], LONGEST)
    ended, right = sum(END in made for _, made in rows), sum(map(eq, rows, asked))
    CsvLog(folder / "log" / "answers.csv")({"prompts": len(rows), "ended": ended, "right": right})
    kept = drafter.draft_ids(rows)
    trained = drafter.train(model, rows, kept, CsvLog(folder / "log" / "drafter.csv"))
    drafter.save(trained, kept, folder / "drafter", model.config.vocab_size)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "prompts": build_prompts,
    "target": build_target,
    "drafter": build_drafter,
    "measures": report.write,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="reference_models.tiny.training")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(BUILDERS)}; all by default")
    parser.add_argument("--to", type=Path, default=HERE, help="the folder to write")
    given = parser.parse_args()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    for stage in given.stages or BUILDERS:
        BUILDERS[stage](given.to)


if __name__ == "__main__":
    main()
