"""vLLM's counters of the reference pair are our own, request by request and position by position.

What it counted lies in data/engines/vllm-0.32.0-cpu-tiny.json; engines_run/README.md tells how it was run. Each request
was served twice: with the drafter's config as saved, and as `lint --write-config` writes it for vLLM.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.audit.lint import lint
from drafter_audit.decode.live import decode_live
from drafter_audit.decode.replay import replay
from drafter_audit.decode.settings import Settings
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.measure.acceptance import PromptCounts
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import Greedy, TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from tests.engines_run.vllm_pair import DRAFTER, ENGINE, KEPT, STEPS, TARGET, fingerprints, run
from tests.plain_rounds import accepted_by_round
from tests.recordings import LOOKAHEAD, held, recorded

RECORD: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
RUNS = ("as_saved", "mended")
COUNTERS = ("drafts", "drafted", "accepted", "per_position")

each_run = pytest.mark.parametrize("run_name", RUNS)


def served(run_name: str) -> list[dict[str, Any]]:
    """What vLLM did with each request."""
    requests: list[dict[str, Any]] = RECORD[run_name]["requests"]
    return requests


def in_vllms_words(counts: PromptCounts) -> dict[str, Any]:
    per_position = [sum(counts.histogram[step + 1 :]) for step in range(STEPS)]
    drafted = STEPS * counts.rounds
    return {"drafts": counts.rounds, "drafted": drafted, "accepted": counts.accepted, "per_position": per_position}


def told(request: dict[str, Any]) -> dict[str, Any]:
    return {name: request[name] for name in COUNTERS}


@cache
def target() -> TargetModel:
    return load_target(str(TARGET), dtype="float32")


@cache
def written(place: int) -> Greedy:
    """The target's own text after prompt `place`, past the answer's end too, and its states at every boundary."""
    request = served("mended")[place]
    return target().greedy(request["prompt"], len(request["tokens"]) + LOOKAHEAD, range(target().num_layers + 1))


@cache
def drafter(run_name: str) -> Drafter:
    """As vLLM wires it: `lint` says which boundaries its runner takes of the config as saved."""
    declared = declared_wiring(open_drafter(str(DRAFTER), target=str(TARGET)))
    assert declared is not None
    taken = taken_as_saved() if run_name == "as_saved" else declared.boundaries
    return load_drafter(str(DRAFTER), wiring=replace(declared, boundaries=taken), target=str(TARGET))


@cache
def taken_as_saved() -> tuple[int, ...] | None:
    said = lint(str(DRAFTER), target=str(TARGET), engines=[ENGINE]).engines
    return next(engine.boundaries for engine in said if engine.release.runner == "v1")


def test_it_is_a_record_of_this_pair() -> None:
    """Where it is not: VLLM_PYTHON=... python -m tests.engines_run.vllm_pair"""
    assert RECORD["pair"] == fingerprints()


@each_run
def test_some_answers_end_and_some_are_cut(run_name: str) -> None:
    """Each has an end rule of its own."""
    cut = [len(request["tokens"]) == RECORD[run_name]["max_new_tokens"] for request in served(run_name)]
    assert set(cut) == {True, False}


@each_run
def test_the_text_is_the_targets_own(run_name: str) -> None:
    for place, request in enumerate(served(run_name)):
        assert request["tokens"] == written(place).tokens[: len(request["tokens"])].tolist()


@each_run
def test_a_plain_loop_counts_the_same(run_name: str) -> None:
    """vLLM counts a round whole, also one that passes the end token or the limit."""
    ours = drafter(run_name)
    for place, request in enumerate(served(run_name)):
        sequence = torch.cat((torch.tensor(request["prompt"]), written(place).tokens))
        states = written(place).states[list(ours.wiring.boundaries or ())]
        lengths = len(request["prompt"]), len(request["tokens"])
        accepted = accepted_by_round(ours, sequence, states, *lengths, STEPS)
        assert in_vllms_words(PromptCounts.of(request["id"], None, accepted, steps=STEPS)) == told(request)


@each_run
def test_the_live_loop_counts_the_same(run_name: str) -> None:
    prompts = [TokenPrompt(request["id"], None, tuple(request["prompt"])) for request in served(run_name)]
    asked = Settings(steps=STEPS, max_new_tokens=RECORD[run_name]["max_new_tokens"], plain=False)
    ours = decode_live(drafter(run_name), target(), prompts, asked)
    assert [list(tokens) for tokens in ours.tokens] == [request["tokens"] for request in served(run_name)]
    assert list(map(in_vllms_words, ours.counts)) == list(map(told, served(run_name)))


@each_run
def test_replay_counts_the_same(run_name: str) -> None:
    kept = tuple(range(target().num_layers + 1))
    prompts = [
        recorded(
            request["id"],
            len(request["prompt"]),
            len(request["tokens"]),
            torch.cat((torch.tensor(request["prompt"]), written(place).tokens)),
            kept,
            written(place).states,
        )
        for place, request in enumerate(served(run_name))
    ]
    sizes = {"num_layers": kept[-1], "hidden_size": target().hidden_size, "vocab_size": target().vocab_size}
    ours = replay(drafter(run_name), held(prompts, **sizes), STEPS)
    assert list(map(in_vllms_words, ours.counts())) == list(map(told, served(run_name)))


def test_the_config_that_lint_writes_gains_what_the_saved_one_loses() -> None:
    """In vLLM's own counts: its runner takes ids of outputs for boundaries, one off, and says nothing of it."""
    assert taken_as_saved() == tuple(boundary - 1 for boundary in drafter("mended").wiring.boundaries or ())
    assert accept_len("mended") > accept_len("as_saved")


def accept_len(run_name: str) -> float:
    requests = served(run_name)
    return 1 + sum(each["accepted"] for each in requests) / sum(each["drafts"] for each in requests)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python that has vLLM's CPU build")
def test_vllm_counts_so_again(tmp_path: Path) -> None:
    again = run(os.environ["VLLM_PYTHON"], tmp_path)
    assert {name: again[name]["requests"] for name in RUNS} == {name: served(name) for name in RUNS}
