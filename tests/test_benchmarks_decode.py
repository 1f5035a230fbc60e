"""The benchmark of decoding times loops that do the same: on small sizes it runs, and says so where they do not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from benchmarks.bounds import Row, as_table, parser, tell
from benchmarks.decode import RATIOS, Sizes, check_same, main, measure
from benchmarks.decode_size import Size
from benchmarks.decode_size import measure as grown
from benchmarks.loops import forwards_alone, without_caches
from benchmarks.pairs import Pair, bundled_pair
from drafter_audit.decode.live import decode_live
from drafter_audit.decode.replay import ReplayRun
from drafter_audit.decode.settings import Settings
from drafter_audit.model.network import Network
from tests.recordings import MANIFEST

SMALL = Sizes(bundled=1, layers=8, prompt=6, new=4, recorded=12, whole=56, end=4)
ASKED = Settings(steps=3, max_new_tokens=24, plain=False)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return bundled_pair(2)


@pytest.mark.usefixtures("one_thread")
def test_it_runs_on_small_sizes() -> None:
    rows = {row.name: row for row in measure(1, SMALL)}
    bounded = {f"{pair}: {ratio.name}": bound for ratio in RATIOS for pair, bound in ratio.bounds.items()}
    assert {name: row.bound for name, row in rows.items() if row.bound is not None} == bounded
    assert all(row.ours > 0 for row in rows.values())
    spent = {name.removeprefix("random: ").removesuffix(", s"): row.ours for name, row in rows.items()}
    for ratio in RATIOS:
        assert rows[f"random: {ratio.name}"].ours == pytest.approx(ratio.of(spent))


@pytest.mark.usefixtures("one_thread")
def test_growth_runs_on_a_small_size() -> None:
    found = grown(Size(tokens=5, layers=8, steps=2), runs=1, new=3)
    assert found.kb_a_token > 3 * 512 * 4 / 1000  # three states a token, beside what the target thought
    assert found.round_ms > 0
    assert found.replay_ms > 0


def test_the_loop_without_caches_accepts_what_the_live_loop_does(pair: Pair) -> None:
    live = decode_live(pair.drafter, pair.target, pair.prompts, ASKED)
    assert without_caches(pair, ASKED) == list(live.rounds)
    assert sum(map(sum, live.rounds)) > 0


def test_the_forwards_alone_are_those_of_the_live_loop(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    step, seen = Network.step, list[tuple[str, int, int]]()

    def listened(network: Network, ids: torch.Tensor, hidden: torch.Tensor, places: torch.Tensor, attend: Callable):  # type: ignore[type-arg]
        seen.append(("drafter", len(ids), int(places[0])))
        return step(network, ids, hidden, places, attend)

    monkeypatch.setattr(Network, "step", listened)
    with reading(pair, seen):
        live = decode_live(pair.drafter, pair.target, pair.prompts, ASKED)
        ours, seen[:] = list(seen), []
        forwards_alone(pair, live.rounds, ASKED.steps)
    assert seen == ours


@contextmanager
def reading(pair: Pair, seen: list[tuple[str, int, int]]) -> Iterator[None]:
    """Puts down how many tokens the target reads, and after how many."""

    def listened(_: object, args: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> None:
        seen.append(("target", named["inputs_embeds"].shape[1], int(named["position_ids"][0, 0])))

    hook = pair.target.model.model.layers[0].register_forward_pre_hook(
        lambda module, args, named: listened(module, args, {"inputs_embeds": args[0], **named}), with_kwargs=True
    )
    try:
        yield
    finally:
        hook.remove()


def test_a_loop_that_accepts_other_drafts_ends_the_run(pair: Pair) -> None:
    live = decode_live(pair.drafter, pair.target, pair.prompts, ASKED)
    replayed = ReplayRun(pair.drafter.spec, MANIFEST, ASKED.shape, ())
    with pytest.raises(SystemExit, match="error: accepted were"):
        check_same(live, live.rounds, replayed)
    with pytest.raises(SystemExit, match="error: accepted were"):
        check_same(replace(live, counts=()), [(3,), *live.rounds[1:]], replayed)
    check_same(replace(live, counts=()), live.rounds, replayed)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Row("most", 1.2, bound=1.3), "most    1.20  <= 1.30  yes"),
        (Row("most", 1.4, bound=1.3), "most    1.40  <= 1.30  NO"),
        (Row("least", 9.9, bound=10, least=True), "least   9.90  >= 10  NO"),
        (Row("least", 10, bound=10, least=True), "least   10    >= 10  yes"),
    ],
)
def test_a_bound_is_the_most_or_the_least(row: Row, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_table([row], ("ours",)).splitlines()[1] == told
    assert tell([row, Row("a time", 3.0)], argparse.Namespace(json=True, runs=3), ("ours",), "") == (not row.ok)
    assert [each["ok"] for each in json.loads(capsys.readouterr().out)["rows"]] == [told.endswith("yes"), True]


def test_too_few_turns_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--runs", "2"])
    assert "must be at least 3" in capsys.readouterr().err
    assert parser("", 5, 3).parse_args([]).runs == 5
