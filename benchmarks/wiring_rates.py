"""How often the wiring check finds a fault, and how often it blames what is whole, by the amount of data.

The reference target answers the held-out prompts once, with every boundary and every logit. From that recording draws
of prompts are made (wiring_draws.py). Measured are: how often a planted fault is found, by KL and by accept_len,
against the number of positions; how often the healthy drafter is blamed, by the same two rules and by the whole check;
and how often a 95% interval misses the truth, against the number of prompts (wiring_misses.py).

`python -m benchmarks.wiring_rates` takes some minutes, prints the tables of docs/wiring.md and writes what they and the
plots are made of into docs/. `--json` prints it and writes nothing, `--keep DIR` keeps the recording for the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.wiring_draws import Draw, Sample, Scored, draw, drawn
from benchmarks.wiring_misses import Misses, misses
from benchmarks.wiring_page import HEALTHY, plots, tables
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.measure.bars import MIN_GAIN
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.tokenizer import load_tokenizer
from drafter_audit.prompts.read import read_prompts
from drafter_audit.prompts.render import render
from drafter_audit.recording import make
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.check import Asked, Files, checked
from drafter_audit.wiring.probe import open_probe
from tests.planted import TINY, planted

DOCS = Path(__file__).resolve().parents[1] / "docs"
PROMPTS = Path(__file__).resolve().parents[1] / "tests/data/prompts/held_out.jsonl"
LONGEST = 128
FAULTS = ("ids -1", "slot 0 +1", "slot 0 -1", "theta 15000", "no last norm")
"""From what costs much to what hardly costs; the last costs nothing: it changes how sure the drafter is, not what it
drafts."""
POSITIONS = (100, 250, 500, 1000, 2000, 4000)


@dataclass(frozen=True)
class Rate:
    """Of `draws` of about so many `positions`, from as many `prompts` at most: in how many KL and accept_len blame
    anything, and in how many what they blame leads to the wiring that it was trained with."""

    fault: str
    positions: int
    prompts: int
    draws: int
    kl: int
    kl_named: int
    accept_len: int
    accept_len_named: int


@dataclass(frozen=True)
class Alarms:
    """The whole check of the healthy drafter on `draws` of so many prompts: how many blame a knob, and the verdicts."""

    draws: int
    prompts: int
    positions: int
    alarms: int
    verdicts: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """`seeds` draws for each rate, `checks` of `prompts` each for the whole check, `intervals` for each miss rate."""

    seeds: int = 100
    checks: int = 20
    prompts: int = 32
    intervals: int = 500
    positions: tuple[int, ...] = POSITIONS
    faults: tuple[str, ...] = FAULTS


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write what docs/wiring.md shows."""
    made = argparse.ArgumentParser(description="Measure how often the wiring check is right, by the amount of data.")
    made.add_argument("--seeds", type=int, default=Plan.seeds, metavar="N", help="draws for each rate")
    made.add_argument("--json", action="store_true", help="print JSON, and write nothing")
    made.add_argument("--keep", metavar="DIR", type=Path, help="keep the recording there, or go on with it")
    options = made.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        recording = recorded(options.keep or Path(folder, "recording"))
        found = measure(recording, Path(folder), Plan(seeds=options.seeds))
    text = json.dumps(found, indent=1) + "\n"
    print(text if options.json else tables(found))
    if not options.json:
        (DOCS / "wiring_rates.json").write_text(text)
        for name, plot in plots(found).items():
            (DOCS / name).write_text(plot)
    return 0


def recorded(folder: Path) -> Recording:
    """All held-out prompts, answered by the reference target."""
    target, tokenizer = load_target("tiny-target"), load_tokenizer("tiny-target")
    assert tokenizer is not None  # it is bundled
    limits: dict[str, Any] = {"max_positions": None, "max_new_tokens": 0, "vocab_size": target.vocab_size}
    prompts = render(read_prompts(str(PROMPTS)), tokenizer.tokenizer, thinking=None, raw=False, **limits)
    every = tuple(range(target.num_layers + 1))
    make.record(target, prompts, folder, make.Settings(every, max_new_tokens=LONGEST, top=target.vocab_size))
    return open_recording(folder)


def measure(recording: Recording, folder: Path, plan: Plan) -> dict[str, Any]:
    """All figures, as JSON. Faulty drafters are written into `folder`."""
    whole = Scored.of(str(TINY), recording)
    rates = list(rates_of(HEALTHY, whole, whole.probe.declared, plan))
    for place, fault in enumerate(plan.faults):
        where = folder / str(place)
        where.mkdir()
        faulty = planted(where, fault, also=MILD)
        rates += rates_of(fault, Scored.of(faulty, recording), whole.probe.declared, plan)
    return {
        "plan": asdict(plan),
        "recorded": {"prompts": len(recording.manifest.answers), "positions": len(whole.probe.corpus.prompt_of)},
        "rates": [asdict(rate) for rate in rates],
        "alarms": asdict(alarms(recording, plan)),
        "misses": [asdict(each) for each in interval_misses(whole, plan)],
    }


def _slot_0_back(config: dict[str, Any], _: Mapping[str, object]) -> None:
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [0, 5, 8]


def _half_as_much_again(config: dict[str, Any], _: Mapping[str, object]) -> None:
    """Its gain is not far above the least that is blamed."""
    config["rope_parameters"]["rope_theta"] = 15_000.0


MILD = {"slot 0 -1": _slot_0_back, "theta 15000": _half_as_much_again}
"""Beside those of tests/planted.py."""


def rates_of(fault: str, scored: Scored, truth: Wiring, plan: Plan) -> Iterator[Rate]:
    """The same draws for every fault; `truth` is the wiring that it was trained with."""
    answers = scored.probe.corpus.manifest.answers
    for positions in plan.positions:
        chosen = [draw(answers, positions, order(len(answers), seed)) for seed in range(plan.seeds)]
        blamed = np.array([blames(scored.on(each), truth) for each in chosen]).sum(axis=0)
        most = max(len(each.kept) for each in chosen)
        yield Rate(fault, positions, most, plan.seeds, *map(int, blamed))


def order(prompts: int, seed: int) -> Sequence[int]:
    """All prompts, in an order by that seed."""
    return [int(place) for place in np.random.default_rng(seed).permutation(prompts)]


def blames(sample: Sample, truth: Wiring) -> tuple[bool, bool, bool, bool]:
    """By KL: whether anything is blamed, and whether it leads to the `truth`; by accept_len the same."""
    kl, accept_len = sample.by_kl(), sample.by_accept_len()
    named = [each is not None and not truth.differs(each.hypothesis.wiring) for each in (kl, accept_len)]
    return kl is not None, named[0], accept_len is not None, named[1]


def alarms(recording: Recording, plan: Plan) -> Alarms:
    """The check as the command runs it, with its race and controls, on draws of whole answers."""
    answers, verdicts, alarmed, positions = recording.manifest.answers, dict[str, int](), 0, 0
    for seed in range(plan.checks):
        kept = tuple(order(len(answers), seed)[: plan.prompts])
        probe = open_probe(str(TINY), drawn(recording, Draw(kept, LONGEST)))
        found = checked(probe, Files(), Asked(MIN_GAIN, ()))
        alarmed += bool(found.evidence.found.faults)
        positions += found.evidence.found.declared.positions
        verdicts[found.verdict.name] = verdicts.get(found.verdict.name, 0) + 1
    return Alarms(plan.checks, plan.prompts, positions // plan.checks, alarmed, verdicts)


def interval_misses(whole: Scored, plan: Plan) -> Iterator[Misses]:
    """Of three differences between the trained wiring and a wrong one: in KL, of a kind alike in all prompts and of one
    that is not, and in accept_len."""
    prompt_of = whole.probe.corpus.prompt_of
    for name, values in (
        ("slot 0 at boundary 3", "kl"),
        ("rope_theta 500000", "kl"),
        ("slot 0 at boundary 3", "accept_len"),
    ):
        other = next(each for each in whole.attempts if each.hypothesis.name == name).score
        pairs = {"kl": (whole.base.kl[0], other.kl[0]), "accept_len": (whole.base.accepted, other.accepted)}
        yield from misses(f"{values}, {name}", *pairs[values], prompt_of, plan.intervals)


if __name__ == "__main__":
    sys.exit(main())
