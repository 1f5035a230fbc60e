"""What a sweep over servers measured: tokens/s and accept_len of every cell, the best, why, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator

from drafter_audit.bench.cells import Outcome
from drafter_audit.bench.sweep_result import EngineSweep, row
from drafter_audit.errors import escape
from drafter_audit.measure.cycle_fit import Lever
from drafter_audit.report.document import Block, Document, Lines, Table
from drafter_audit.report.numbers import figure, interval, raw
from drafter_audit.report.provenance import measured_with


def engine_sweep_document(sweep: EngineSweep) -> Document:
    return Document(tuple(_blocks(sweep)), _csv(sweep))


def _blocks(sweep: EngineSweep) -> Iterator[Block]:
    yield _table(sweep)
    yield Lines(tuple(_conclusions(sweep)), "Best")
    if sweep.levers:
        yield Lines(tuple(_levers(sweep)), "What would help")
    without = [f"{escape(o.cell.words)}: {o.reason}" for o in sweep.outcomes if o.reason]
    if without:
        yield Lines(tuple(without), "Not measured")
    yield measured_with(sweep.provenance)
    if sweep.notes:
        yield Lines(sweep.notes, "Notes")


def _table(sweep: EngineSweep) -> Table:
    headers = ("variables", "steps", "tokens/s", "95% interval", "accept_len", "95% interval", "cycle ms", "")
    rows = tuple(_row(sweep, outcome) for outcome in sweep.outcomes)
    return Table(headers, rows, f"{sweep.provenance.drafter.ref} under {sweep.engine}", frozenset(range(1, 7)))


def _row(sweep: EngineSweep, outcome: Outcome) -> tuple[str, ...]:
    told = outcome.told
    length = figure(told("accept_len"))
    if told("accept_len_bounds"):
        length = f"in {interval(told('accept_len_bounds'))}"
    mark = "best" if outcome is sweep.best else outcome.status
    return (
        escape(outcome.cell.env_set.name),
        str(outcome.cell.steps or "plain"),
        figure(outcome.tokens_per_s, 1),
        interval(told("tokens_per_s_interval"), 1),
        length,
        interval(told("accept_len_interval")),
        figure(outcome.cycle_ms, 2),
        "" if mark == "done" else mark,
    )


def _conclusions(sweep: EngineSweep) -> Iterator[str]:
    best, plain = sweep.best, sweep.best_plain
    if best is None:
        yield "no cell with the drafter was measured"
        return
    within = f", 95% interval {interval(best.told('tokens_per_s_interval'), 1)}" if _has_interval(best) else ""
    yield f"{best.cell.words}: {figure(best.tokens_per_s, 1)} tokens/s{within}"
    if plain is not None and (plain.tokens_per_s or 0) > (best.tokens_per_s or 0):
        yield f"plain decoding is faster: {plain.cell.words}: {figure(plain.tokens_per_s, 1)} tokens/s"
    yield from _variables(sweep)
    own = sweep.plain_of(best)
    if own and own.tokens_per_s and best.tokens_per_s:
        speedup = best.tokens_per_s / own.tokens_per_s
        even = figure(sweep.break_even)
        yield f"{speedup:.3f} times plain decoding with the same variables; break-even accept_len {even}"
    if sweep.fit is not None and sweep.verify_share is not None:
        costs, off = sweep.fit.costs, f"{sweep.fit.cells} cells, off by {sweep.fit.off_ms:.2f} ms at most"
        yield f"a cycle is {costs.verify_ms:.2f} ms to verify and {costs.draft_ms:.2f} ms a draft step ({off})"
        yield f"verifying is {sweep.verify_share:.0%} of the best cell's cycle"
    for value, worth in sweep.answers_to_what_if:
        told = "its rounds cannot emit so much" if worth is None else f"{worth:,.1f} tokens/s"
        yield f"what if accept_len were {value:g}, at the best cell's cycle: {told}"


def _has_interval(outcome: Outcome) -> bool:
    return outcome.told("tokens_per_s_interval") is not None


def _variables(sweep: EngineSweep) -> Iterator[str]:
    """What variables alone do for plain decoding, where there are several sets."""
    speeds = [(o.cell.env_set.name, o.tokens_per_s) for o in sweep.plain if o.tokens_per_s]
    if len(speeds) > 1:
        slow, fast = min(speeds, key=lambda each: each[1]), max(speeds, key=lambda each: each[1])
        yield (
            f"plain decoding: {slow[1]:,.1f} tokens/s with {escape(slow[0])}, {fast[1]:,.1f} with {escape(fast[0])}: "
            f"variables alone make it {fast[1] / slow[1]:.2f} times as fast"
        )


def _levers(sweep: EngineSweep) -> Iterator[str]:
    chosen = sweep.next_lever
    yield f"next: {_NAMES[chosen.name]}" if chosen else "next: none of these gains more than a second run may differ"
    for lever in sweep.levers:
        yield f"{_NAMES[lever.name]}: {_words(sweep, lever)}"


_NAMES = {"steps": "step count", "communication": "communication", "drafter": "a better drafter"}


def _words(sweep: EngineSweep, lever: Lever) -> str:
    speed, best, fit = f"{lever.tokens_per_s:,.1f} tokens/s", sweep.best, sweep.fit
    assert best is not None  # else there were no levers
    assert fit is not None
    if lever.name == "drafter":
        return f"at most {speed}, with every one of the {best.cell.steps} drafts accepted"
    if lever.name == "communication":
        plain = sweep.plain_of(best)
        token = figure(1000 / plain.tokens_per_s if plain and plain.tokens_per_s else None, 2)
        return (
            f"at most {speed}, if a verification ({fit.costs.verify_ms:.2f} ms) took no longer than a plain token "
            f"({token} ms): links and kernels take the rest"
        )
    return f"at most {speed}, by the model of a cycle, at any step count whose accept_len is known"


def _csv(sweep: EngineSweep) -> Table:
    told = [row(outcome) for outcome in sweep.outcomes]
    for each in told:
        each["env"] = " ".join(f"{name}={value}" for name, value in each["env"].items())
        for name in ("interval", "tokens_per_s_interval"):
            low, high = each.pop(name) or (None, None)
            stem = name.replace("interval", "").rstrip("_") or "accept_len"
            each[f"{stem}_low"], each[f"{stem}_high"] = low, high
    return Table(tuple(told[0]), tuple(tuple(map(raw, each.values())) for each in told))
