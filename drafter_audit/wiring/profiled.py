"""The profile of a drafter under one wiring, from a replay of all its rounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

import torch
from torch import Tensor

from drafter_audit.decode.replay import ReplayedPrompt, ReplayRun, replay
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.bootstrap import accept_len_interval
from drafter_audit.model.drafter import Drafter
from drafter_audit.recording.recording import RecordedPrompt, Recording
from drafter_audit.wiring.profile import Astray, Group, Profile

_FREQUENT = 5
"""Times that a token must come to be asked what is drafted in its place."""
_NEARLY_ALWAYS = 0.8
_EXAMPLES = 5

_Answers = list[tuple[ReplayedPrompt, RecordedPrompt]]


def profiled(drafter: Drafter, recording: Recording, steps: int) -> Profile:
    """Raises what `replay` raises."""
    run = replay(drafter, recording, steps)
    answers = list(zip(run.prompts, recording.prompts(()), strict=True))
    acceptance = Acceptance.pooled(run.counts(), steps=steps)
    reach = drafter.spec.architecture.max_position_embeddings
    return Profile(
        accept_len=acceptance.accept_len,
        interval=accept_len_interval(acceptance),
        rounds=acceptance.rounds,
        teacher_forced=_teacher_forced(answers, steps),
        free_running=tuple(acceptance.conditional or ()),
        coverage=run.coverage,
        ceiling=Acceptance.pooled(run.ceiling(), steps=steps).accept_len,
        categories=tuple(_categories(run)),
        positions=tuple(_positions(answers, reach)),
        reach=reach,
        astray=_astray(answers),
    )


def _own(recorded: RecordedPrompt, step: int, starts: int) -> Tensor:
    """The target's own tokens that drafts of `step` are held to."""
    first = recorded.prompt_length + 1 + step
    return recorded.tokens[first : first + starts]


def _teacher_forced(answers: _Answers, steps: int) -> tuple[float, ...]:
    """Within the answers: what the target said beyond their ends is no part of them."""
    right, drafted = [0] * steps, [0] * steps
    for replayed, recorded in answers:
        starts = len(replayed.matches)
        for step in range(min(steps, starts)):
            within = starts - step
            hits = replayed.drafts[step, :within] == _own(recorded, step, within)
            right[step] += int(hits.sum())
            drafted[step] += within
    return tuple(hits / tried for hits, tried in zip(right, drafted, strict=True) if tried)


def _categories(run: ReplayRun) -> Iterator[Group]:
    found: dict[str, list[Tensor]] = defaultdict(list)
    for prompt in run.prompts:
        found[prompt.category or "none"].append(prompt.matches)
    yield from (_group(name, torch.cat(matches)) for name, matches in found.items() if sum(map(len, matches)))


def _positions(answers: _Answers, reach: int | None) -> Iterator[Group]:
    """Doubling spans of absolute positions, parted at the draft's max positions too: a step there is a fault of it."""
    places = [torch.arange(len(r.matches)) + told.prompt_length - 1 for r, told in answers]
    at, matches = torch.cat(places), torch.cat([replayed.matches for replayed, _ in answers])
    last = int(at.max()) if len(at) else -1
    for low, high in _spans(last, reach):
        inside = (at >= low) & (at < high)
        if bool(inside.any()):
            yield _group(f"{low}-{high - 1}", matches[inside])


def _spans(last: int, reach: int | None) -> Iterator[tuple[int, int]]:
    edges = {0, last + 1, *(64 << power for power in range(20) if 64 << power <= last)}
    ends = sorted(edges | ({reach} if reach is not None and 0 < reach <= last else set()))
    yield from pairwise(ends)


def _group(name: str, matches: Tensor) -> Group:
    return Group(name, len(matches), 1 + float(matches.double().mean()))


def _astray(answers: _Answers) -> Astray:
    """Where a network is broken, what it drafts for a token comes in many other places too; where rows of the head
    are exchanged, nowhere else."""
    drafted: dict[int, Counter[int]] = defaultdict(Counter)
    times: Counter[int] = Counter()
    for replayed, recorded in answers:
        own = _own(recorded, 0, len(replayed.matches)).tolist()
        for token, draft in zip(own, replayed.drafts[0].tolist(), strict=True):
            drafted[token][draft] += 1
            times[draft] += 1
    frequent = {token: drafts for token, drafts in drafted.items() if drafts.total() >= _FREQUENT}
    pairs = list(_elsewhere(frequent, times))
    return Astray(len(frequent), len(pairs), tuple(pairs[:_EXAMPLES]))


def _elsewhere(drafted: Mapping[int, Counter[int]], times: Counter[int]) -> Iterator[tuple[int, int]]:
    """(token, what is drafted in its place) where that is one other token nearly always, and nearly all of the `times`
    that this one is drafted."""
    for token, drafts in sorted(drafted.items()):
        draft, here = drafts.most_common(1)[0]
        if draft != token and here >= _NEARLY_ALWAYS * max(drafts.total(), times[draft]):
            yield token, draft
