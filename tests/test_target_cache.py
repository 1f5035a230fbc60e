"""A target that forgets the end of its text goes on as if it had never seen it, or says that it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafter_audit.errors import CannotRunError, InputsError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from tests.test_target import close
from tests.tiny_targets import FAMILIES, LAYERS, write_family

TEXT = torch.arange(9, 40)
ALL = range(LAYERS + 1)
WINDOW = 8
LINEAR = {"qwen3_next", "kimi_linear"}
SLIDING = {"gpt_oss", "gemma3", "gemma3_wrapped"}


def target_of(name: str, folder: Path) -> TargetModel:
    return load_target(write_family(name, folder))


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - LINEAR))
def test_a_text_that_was_rolled_back_goes_on_as_if_it_had_never_been_longer(name: str, tmp_path: Path) -> None:
    """By one token, into a window of 8, and by all; the other end was another text."""
    target = target_of(name, tmp_path)
    assert target.can_roll_back
    logits, states = target.forward_with_taps(TEXT, ALL)
    past = target.new_cache(whole=True)
    for length in (len(TEXT) - 1, 13, 1, 0):
        target.roll_back(past, 0)
        target.forward_with_taps(torch.cat((TEXT[:length], TEXT[length:] + 40)), (), past=past)
        target.roll_back(past, length)
        assert past.get_seq_length() == length
        again, new = target.forward_with_taps(TEXT[length:], ALL, past=past)
        assert close(again, logits[length:]), length
        assert close(new, states[:, length:]), length


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_linear_attention_says_before_that_it_cannot(name: str, tmp_path: Path) -> None:
    target = target_of(name, tmp_path)
    assert not target.can_roll_back
    past = target.new_cache(whole=True)
    target.forward_with_taps(TEXT, (), past=past)
    target.roll_back(past, len(TEXT))  # nothing to forget
    with pytest.raises(CannotRunError, match="a LinearAttentionLayer of the cache cannot be rolled back from 31 to 30"):
        target.roll_back(past, len(TEXT) - 1)
    assert past.get_seq_length() == len(TEXT)


@pytest.mark.parametrize("name", sorted(SLIDING))
def test_a_window_is_rolled_back_until_it_is_passed(name: str, tmp_path: Path) -> None:
    target = target_of(name, tmp_path)
    logits = target.forward_with_taps(TEXT, ())[0]
    past = target.new_cache()
    target.forward_with_taps(TEXT[: WINDOW - 1] + 40, (), past=past)
    target.roll_back(past, 0)
    target.forward_with_taps(TEXT[: WINDOW - 1], (), past=past)
    target.roll_back(past, 3)
    assert close(target.forward_with_taps(TEXT[3:WINDOW], (), past=past)[0], logits[3:WINDOW])
    with pytest.raises(CannotRunError, match=r"cannot be rolled back from 8 to 7, .*or ask for a cache of whole texts"):
        target.roll_back(past, WINDOW - 1)


def test_a_whole_cache_is_rolled_back_inside_what_it_has_seen(tmp_path: Path) -> None:
    target = target_of("llama", tmp_path)
    past = target.new_cache()
    target.forward_with_taps(TEXT, (), past=past)
    for length in (-1, len(TEXT) + 1):
        with pytest.raises(InputsError, match=r"give a length within 0\.\.31"):
            target.roll_back(past, length)
