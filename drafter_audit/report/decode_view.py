"""What `decode` measured: accept_len and its interval first, then the counts behind it, what it is worth, and with what
it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drafter_audit.decode.result import DecodeResult, DecodeResults
from drafter_audit.errors import escape
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.costs import Costs
from drafter_audit.report.document import Block, Document, Lines, Table
from drafter_audit.report.numbers import NOTHING, bar, count, figure, interval, raw, share
from drafter_audit.report.provenance import TIES, answers, at, measured_with, places


def decode_document(results: DecodeResults) -> Document:
    """All blocks of one result; of several, first what sets them against each other."""
    named = zip(results.names, results.results, strict=True)
    together = _side_by_side(results) if len(results.results) > 1 else ()
    return Document((*together, *(block for one in named for block in _blocks(*one))), _csv(results))


def _side_by_side(results: DecodeResults) -> Iterator[Block]:
    headers = ("drafter", "accept_len", "95% interval", "request mean", "accept rate", "tokens/s", "training samples")
    rows = tuple(_side(*one) for one in zip(results.names, results.results, strict=True))
    yield Table(headers, rows, "accept_len", frozenset(range(1, 7)))
    yield from _by_samples(results)
    yield Table(
        ("a", "b", "b less a", "95% interval"),
        tuple(
            (escape(p.a), escape(p.b), figure(p.difference), p.reason or interval(p.interval)) for p in results.paired
        ),
        "Paired on the same prompts",
        frozenset({2}),
    )


def _by_samples(results: DecodeResults) -> Iterator[Table]:
    """accept_len against what each was trained on, where at least two say so."""
    named = zip(results.names, results.results, strict=True)
    known = [(samples, name, r) for name, r in named if (samples := r.provenance.drafter.samples) is not None]
    if len(known) > 1:
        known.sort(key=lambda one: one[0])
        rows = tuple((count(samples), figure(r.acceptance.accept_len), escape(name)) for samples, name, r in known)
        yield Table(("training samples", "accept_len", "drafter"), rows, "By training samples", frozenset({0, 1}))


def _side(name: str, result: DecodeResult) -> tuple[str, ...]:
    acceptance = result.acceptance
    return (
        escape(name),
        figure(acceptance.accept_len),
        interval(result.interval),
        figure(acceptance.request_mean),
        share(acceptance.accept_rate),
        figure(result.costs.tokens_per_s if result.costs else None, 1),
        count(result.provenance.drafter.samples),
    )


def _blocks(name: str, result: DecodeResult) -> Iterator[Block]:
    acceptance = result.acceptance
    yield Lines(tuple(_head(result)), f"{name}: accept_len")
    if acceptance.histogram is not None:
        yield by_position(acceptance)
        yield by_rounds(acceptance)
    yield from categories(acceptance)
    if result.costs is not None:
        yield _times(result.costs)
        yield Lines(tuple(_worth(result, result.costs)), "Worth")
    parted = (*places("mismatches", result.mismatches), *places(TIES, result.ties))
    yield Lines((*answers(acceptance, result.coverage), *_lossless(result), *parted), "Answers")
    yield measured_with(result.provenance)
    if result.notes:
        yield Lines(result.notes, "Notes")


def _head(result: DecodeResult) -> Iterator[str]:
    acceptance = result.acceptance
    within = f"95% interval {interval(result.interval)}" if result.interval else "no interval: that takes two answers"
    yield f"accept_len {acceptance.accept_len:.3f} tokens per round, {within}"
    if acceptance.request_mean is not None:
        yield f"mean over requests {acceptance.request_mean:.3f}"
    rate = f" of {count(acceptance.drafted)} drafted ({share(acceptance.accept_rate)})" if acceptance.drafted else ""
    yield f"{count(acceptance.rounds)} rounds, {count(acceptance.accepted)} drafts accepted{rate}"
    shape, topk = ("chain", "") if acceptance.topk == 1 else ("tree", f", top-k {acceptance.topk}")
    steps = f"{acceptance.steps} step{'' if acceptance.steps == 1 else 's'}"
    yield f"{shape} of {steps}{topk}, {count(acceptance.num_draft_tokens)} tokens verified a round"
    if acceptance.unknown:
        yield f"not told: {', '.join(acceptance.unknown)}"


def by_position(acceptance: Acceptance) -> Table:
    """The rates by position, of a record that has a histogram."""
    counts, rates = acceptance.per_position_counts or (), acceptance.per_position or ()
    each = zip(counts, rates, acceptance.conditional or (), strict=True)
    rows = tuple((str(i), count(n), share(rate), bar(rate), share(after)) for i, (n, rate, after) in enumerate(each, 1))
    headers = ("draft", "accepted in", "of all rounds", "", "of those that accepted all before")
    return Table(headers, rows, "By position", frozenset({0, 1, 2, 4}))


def by_rounds(acceptance: Acceptance) -> Table:
    """How many rounds accepted how many drafts, of a record that has a histogram."""
    parts = [(number, number / acceptance.rounds) for number in acceptance.histogram or ()]
    rows = tuple((str(j), count(number), share(part), bar(part)) for j, (number, part) in enumerate(parts))
    return Table(("drafts accepted", "rounds", "share", ""), rows, "Rounds by what they accepted", frozenset({0, 1, 2}))


def categories(acceptance: Acceptance) -> Iterator[Table]:
    """accept_len by category of prompts, where there are several and they took rounds."""
    found: dict[str | None, list[PromptCounts]] = {}
    for prompt in acceptance.per_prompt:
        found.setdefault(prompt.category, []).append(prompt)
    if len(found) > 1:
        rows = tuple(_category(escape(name or NOTHING), prompts) for name, prompts in found.items())
        yield Table(("category", "answers", "rounds", "accept_len"), rows, "By category", frozenset({1, 2, 3}))


def _category(name: str, prompts: Sequence[PromptCounts]) -> tuple[str, ...]:
    rounds, accepted = (sum(getattr(p, counts) for p in prompts) for counts in ("rounds", "accepted"))
    return name, count(len(prompts)), count(rounds), figure(1 + accepted / rounds if rounds else None)


def _times(costs: Costs) -> Table:
    timing, rounds = costs.timing, costs.acceptance.rounds
    parts = {"verify": timing.verify_s, "draft": timing.draft_s, "extend": timing.extend_s, "other": timing.other_s}
    each = ((name, seconds, seconds / timing.total_s) for name, seconds in parts.items())
    rows = [(name, figure(s), figure(1000 * s / rounds), share(part), bar(part)) for name, s, part in each]
    rows.append(("cycle", figure(timing.total_s), figure(1000 * costs.cycle_s), share(1.0), ""))
    return Table(("", "seconds", "ms a round", "share", ""), tuple(rows), "Times", frozenset({1, 2, 3}))


def _worth(result: DecodeResult, costs: Costs) -> Iterator[str]:
    prefill = costs.timing.prefill_s
    apart = "" if prefill is None else f"; reading the prompts took {prefill:.3f} s more, which is in no figure"
    yield f"{costs.tokens_per_s:,.1f} tokens/s{apart}"
    plain = costs.timing.plain_tokens_per_s
    if plain is None:
        yield "plain decoding was not measured: no speedup, no break-even"
    else:
        yield f"plain decoding: {plain:,.1f} tokens/s, so a speedup of {costs.speedup:.3f}"
        yield f"break-even with it is accept_len {costs.break_even_accept_len:.3f}"
    for value, worth in result.answers_to_what_if:
        against = "" if plain is None else f", {worth / plain:.3f} times plain decoding"
        yield f"what if accept_len were {value:g}, at the same cycle: {worth:,.1f} tokens/s{against}"


def _lossless(result: DecodeResult) -> Iterator[str]:
    found = result.lossless
    if found is not None:
        yield (
            f"{count(found.checked)} tokens checked against plain greedy decoding: {count(found.mismatches)} answers "
            f"part from it, {count(found.ties)} more at a tie (gap below {found.epsilon:g})"
        )


def _csv(results: DecodeResults) -> Table:
    rows = tuple(tuple(raw(value) for value in _flat(result).values()) for result in results.results)
    return Table(tuple(_flat(results.results[0])), rows)


def _flat(result: DecodeResult) -> dict[str, Any]:
    """The JSON's figures in one row; lists with blanks between."""
    told, stop = result.to_dict(), result.acceptance.stop or {}
    timing = told["timing"] or {}
    low, high = result.interval or (None, None)
    return {
        "drafter": at(result.provenance.drafter.ref, result.provenance.drafter.revision),
        "samples": result.provenance.drafter.samples,
        "target": at(result.provenance.target.ref, result.provenance.target.revision),
        "prompts": result.provenance.prompts.name,
        **{name: told[name] for name in ("mode", "rule", "temperature", "seed", "steps", "topk", "num_draft_tokens")},
        "accept_len": told["accept_len"],
        "accept_len_low": low,
        "accept_len_high": high,
        **{name: told[name] for name in _AS_IN_JSON},
        "eos": stop.get("eos"),
        "cap": stop.get("cap"),
        **{name: timing.get(name) for name in ("verify_s", "draft_s", "extend_s", "other_s")},
    }


_AS_IN_JSON = (
    *("accept_len_request_mean", "rounds", "accepted", "drafted", "accept_rate", "tokens", "overshoot", "histogram"),
    *("per_position", "per_position_counts", "conditional", "degenerate", "coverage", "tokens_per_s"),
    *("plain_tokens_per_s", "speedup", "break_even_accept_len"),
)
