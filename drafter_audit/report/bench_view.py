"""What `bench` measured of one server: accept_len first, then the counts, what it is worth, and which server it was."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from drafter_audit.bench.counting import SERVER_DEFINITION
from drafter_audit.bench.reference import Beside
from drafter_audit.bench.result import EngineFacts, EngineResult
from drafter_audit.errors import escape
from drafter_audit.report.decode_view import by_position, by_rounds, categories
from drafter_audit.report.document import Block, Document, Lines, Table
from drafter_audit.report.numbers import count, figure, interval, raw, share
from drafter_audit.report.provenance import answers, measured_with
from drafter_audit.report.reference_view import reference_lines


def bench_document(result: EngineResult, beside: Beside | None = None) -> Document:
    return Document(tuple(_blocks(result, beside)), _csv(result, beside))


def _blocks(result: EngineResult, beside: Beside | None) -> Iterator[Block]:
    name, acceptance = result.provenance.drafter.ref, result.acceptance
    yield Lines(tuple(_head(result)), f"{name} under {result.engine.name}: accept_len")
    if beside is not None:
        yield Lines(tuple(map(escape, reference_lines(beside))), f"Beside the reference loop: {beside.verdict}")
    if acceptance is not None:
        if acceptance.histogram is not None:
            yield by_position(acceptance)
            yield by_rounds(acceptance)
        yield from categories(acceptance)
    yield Lines(tuple(_worth(result)), "Worth")
    yield Lines(tuple(_answers(result)), "Answers")
    yield engine_lines(result.engine)
    yield measured_with(result.provenance)
    if result.remarks:
        yield Lines(result.remarks, "Notes")


def _head(result: EngineResult) -> Iterator[str]:
    acceptance, counted = result.acceptance, result.counted
    if acceptance is None:
        told = figure(counted.accept_len_server)
        yield f"accept_len within {interval(counted.bounds)}: the engine tells N/S = {told}"
        yield f"N/S is another definition ({SERVER_DEFINITION.partition(': ')[2]})"
        yield f"{count(counted.rounds)} rounds, {count(counted.tokens)} tokens"
        return
    within = f"95% interval {interval(result.interval)}" if result.interval else "no interval: that takes two answers"
    yield f"accept_len {acceptance.accept_len:.3f} tokens per round, {within}"
    rate = f" of {count(acceptance.drafted)} drafted ({share(acceptance.accept_rate)})" if acceptance.drafted else ""
    yield f"{count(acceptance.rounds)} rounds, {count(acceptance.accepted)} drafts accepted{rate}"
    shape = "chain" if acceptance.topk == 1 else f"tree, top-k {acceptance.topk}"
    steps = f"{acceptance.steps} step{'' if acceptance.steps == 1 else 's'}"
    yield f"{shape} of {steps}, {count(acceptance.num_draft_tokens)} tokens verified a round"
    if acceptance.unknown:
        yield f"not told: {', '.join(acceptance.unknown)}"


def _worth(result: EngineResult) -> Iterator[str]:
    within = f", 95% interval {interval(result.tokens_per_s_interval, 1)}" if result.tokens_per_s_interval else ""
    yield f"{figure(result.tokens_per_s, 1)} tokens/s of one request at a time, after its first token{within}"
    if result.cycle_s is not None:
        yield f"a round takes {figure(1000 * result.cycle_s)} ms"
    for value, worth in result.answers_to_what_if:
        yield f"what if accept_len were {value:g}, at the same cycle: {worth:,.1f} tokens/s"


def _answers(result: EngineResult) -> Iterator[str]:
    if result.acceptance is not None and result.acceptance.per_prompt:
        yield from answers(result.acceptance, None)
        return
    capped = sum(answer.capped for answer in result.answers)
    told = f"{count(len(result.answers))} answers, {count(result.counted.tokens)} tokens"
    yield f"{told}; {count(len(result.answers) - capped)} ended by an end token, {count(capped)} at the cap"


def engine_lines(engine: EngineFacts) -> Lines:
    """Which server was measured, and what it leaves open."""
    lines = [f"{engine.name} {engine.version or '(version not told)'} at {engine.url}"]
    if engine.start_s is not None:
        lines.append(f"started here, healthy after {engine.start_s:.1f} s; log: {engine.log}")
    lines.append(f"arguments: {escape(shlex.join(engine.args)) if engine.args else 'not told'}")
    told = " ".join(f"{name}={value}" for name, value in (engine.env or {}).items())
    lines.append(f"environment: {escape(told) or ('nothing that decides' if engine.env is not None else 'not told')}")
    lines += [f"not verified: {what}" for what in engine.not_verified]
    return Lines(tuple(lines), "Engine")


def _csv(result: EngineResult, beside: Beside | None) -> Table:
    told = result.to_dict()
    low, high = result.interval or (None, None)
    flat = {
        "drafter": result.provenance.drafter.ref,
        "target": result.provenance.target.ref,
        "prompts": result.provenance.prompts.name,
        "engine": result.engine.name,
        "version": result.engine.version,
        **{name: told[name] for name in _AS_IN_JSON},
        "accept_len_low": low,
        "accept_len_high": high,
        **({} if beside is None else _csv_of_reference(beside)),
    }
    return Table(tuple(flat), (tuple(raw(value) for value in flat.values()),))


def _csv_of_reference(beside: Beside) -> dict[str, object]:
    low, high = (beside.difference.interval if beside.difference else None) or (None, None)
    return {
        "verdict": beside.verdict,
        "reference_accept_len": beside.accept_len,
        "difference": beside.difference.difference if beside.difference else None,
        "difference_low": low,
        "difference_high": high,
    }


_AS_IN_JSON = (
    *("mode", "temperature", "seed", "steps", "topk", "num_draft_tokens", "accept_len", "accept_len_server", "rounds"),
    *("accepted", "drafted", "tokens", "histogram", "per_position", "cycle_s", "tokens_per_s"),
)
