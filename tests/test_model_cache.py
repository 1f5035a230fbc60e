"""Step by step, texts growing and drafts dropped in any order, against a fresh run from the true states."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafter_audit import Drafter
from drafter_audit.errors import CannotRunError
from tests.random_drafters import EAGLE1, LLAMA, MLA, VOCABULARY, write_random
from tests.test_network import close, inputs, loaded

DRAFTERS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "two layers, normed feedback": (LLAMA | {"num_hidden_layers": 2}, "eagle3", {"feedback": "post_norm"}),
    "mla": (MLA, "eagle3_mla", {}),
    "no shift": (LLAMA, "eagle3", {"token_shift": 0}),
    "eagle-1": (EAGLE1, "eagle1", {"head": "embedding"}),
}
TOKEN = st.integers(0, VOCABULARY - 1)
# A round: how many true positions follow, how many of the last drafts are among them, and what is drafted then.
ROUND = st.tuples(st.integers(1, 70), st.integers(0, 4), st.lists(TOKEN, max_size=4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drafters")


@cache
def drafter_of(name: str, folder: Path) -> Drafter:
    config, kind, knobs = DRAFTERS[name]
    return loaded(write_random(folder / name.replace(" ", "_"), config, kind)[0], "float32", **knobs)


def grown(
    ids: list[int], drafted: list[int], states: torch.Tensor, more: int, kept: int
) -> tuple[list[int], torch.Tensor]:
    """The text with `more` true positions, the first `kept` of them as they were drafted."""
    made = torch.Generator().manual_seed(len(ids))
    new = torch.randint(0, VOCABULARY, (more,), generator=made).tolist()
    kept = min(kept, more, len(drafted))
    new[:kept] = drafted[:kept]
    theirs = torch.randn((len(states), more, states.shape[2]), generator=made)
    return ids + new, torch.cat((states, theirs), dim=1)


@pytest.mark.parametrize("name", DRAFTERS)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(ROUND, min_size=1, max_size=5))
def test_any_schedule_computes_what_a_fresh_run_does(
    name: str, folder: Path, rounds: list[tuple[int, int, list[int]]]
) -> None:
    drafter = drafter_of(name, folder)
    slots, width = drafter.states_shape
    text, ids, states, drafted = drafter.start(), list[int](), torch.zeros(slots, 0, width), list[int]()
    for more, kept, chain in rounds:
        seen = len(ids)
        ids, states = grown(ids, drafted, states, more, kept)
        first = drafter.extend(text, ids[seen:], states[:, seen:])
        ours = torch.stack([first[-1], *(drafter.draft(text, token) for token in chain)])
        ahead = torch.cat((states, torch.zeros(slots, len(chain), width)), dim=1)  # only the tokens beyond are read
        fresh = drafter.unroll(ids + chain, ahead, len(chain) + 1)
        assert close(first, fresh[0, seen : len(ids)])
        assert close(ours, fresh[:, len(ids) - 1])
        assert (text.length, text.drafted) == (len(ids), len(chain))
        drafted = chain


def test_texts_do_not_see_each_other(folder: Path) -> None:
    drafter, (ids, states) = drafter_of("mla", folder), inputs()
    one, other = drafter.start(), drafter.start()
    drafter.extend(one, ids[:4], states[:, :4])
    drafter.extend(other, ids[4:], states[:, 4:])
    assert close(drafter.extend(one, ids[4:], states[:, 4:]), drafter.unroll(ids, states, 1)[0, 4:])


def test_memory_is_what_the_text_needs(folder: Path) -> None:
    """Buffers double: at most twice the longest text and its draft, whatever was drafted and dropped."""
    drafter, (_, states) = drafter_of("mla", folder), inputs(tokens=1)
    text = drafter.start()
    for _ in range(150):
        drafter.extend(text, [3], states)
        drafter.draft(text, 4)
        drafter.draft(text, 5)
    assert all(len(buffer[0]) <= 2 * (150 + 2) for held in text._memory._kept.values() for buffer in held)


def test_a_draft_beyond_the_window_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    drafter = loaded(write_random(tmp_path, LLAMA | {"sliding_window": 6})[0], "float32")
    ids, states = inputs()
    text, other = drafter.start(), drafter.start()
    for each in (text, other):
        drafter.extend(each, ids[:4], states[:, :4])
        drafter.draft(each, 7)
    with pytest.raises(CannotRunError, match="7 positions under a sliding window of 6"):
        drafter.extend(text, ids[4:7], states[:, 4:7])
    assert close(drafter.draft(text, 9), drafter.draft(other, 9), 0.0)
    with pytest.raises(CannotRunError, match="sliding window"):
        drafter.draft(text, 9)
    assert (text.length, text.drafted) == (4, 2)
