"""Published accept_len of two drafters: the gap, what it would be worth, and whether the figures may be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drafter_audit.audit.comparability import Rows, pair_rows, reasons_not_comparable, same_setting
from drafter_audit.audit.conclusion import Conclusion, listed, span
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts.records import Throughput
from drafter_audit.measure.step_bounds import Bounds, bound_accept_len, break_even, tokens_per_s_at

_SPOKEN = {"quantization": "quantisation", "batch": "batch size", "topk": "top-k"}


def conclude_acceptance(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    """Nothing where one of the two has no figure of its author's."""
    pair = pair_rows(theirs, ours)
    if pair is None:
        return
    bounds = _bounds(*pair)
    yield _gap(*pair, bounds)
    if bounds is not None and ours.throughput is not None:
        yield _what_if(*pair, bounds, ours.throughput)
    differ, unstated = reasons_not_comparable(*pair)
    if differ or unstated:
        yield _not_comparable(*pair, differ, unstated)


def _bounds(theirs: Rows, ours: Rows) -> Bounds | None:
    """Theirs at our setting; None where trees of different shape or an unstated step count allow no bound."""
    if same_setting(theirs, ours):
        return Bounds(theirs.low, theirs.high)
    steps, to_steps = theirs.chain_steps, ours.chain_steps
    if steps is None or to_steps is None:
        return None
    return bound_accept_len(theirs.low, theirs.high, steps=steps, to_steps=to_steps)


def _gap(theirs: Rows, ours: Rows, bounds: Bounds | None) -> Conclusion:
    text = f"accept_len of {ours.spec.ref} is {span(ours.low, ours.high)}{_at(ours)}"
    text += f", of {theirs.spec.ref} {span(theirs.low, theirs.high)}{_at(theirs)}{_on(theirs)}"
    if bounds is None:
        text += "; no bound can be given, which takes two chains with stated step counts"
    elif theirs.chain_steps != ours.chain_steps:
        text += f", which at {_steps(ours.chain_steps)} lies in [{bounds.low:.3f}, {bounds.high:.3f}]"
    numbers = {
        "ours": ours.mean,
        "ours_low": ours.low,
        "ours_high": ours.high,
        "theirs_low": theirs.low,
        "theirs_high": theirs.high,
        "bounded_low": bounds.low if bounds else None,
        "bounded_high": bounds.high if bounds else None,
        "ours_steps": ours.rows[0].steps,
        "theirs_steps": theirs.rows[0].steps,
        "against": theirs.spec.ref,
        "source": theirs.rows[0].source,
        "publisher": theirs.rows[0].publisher,
    }
    return Conclusion("accept_len_gap", f"{text}.", numbers)


def _what_if(theirs: Rows, ours: Rows, bounds: Bounds, measured: Throughput) -> Conclusion:
    low, high = (
        tokens_per_s_at(value, measured=ours.mean, tokens_per_s=measured.tokens_per_s)
        for value in (bounds.low, bounds.high)
    )
    text = f"At the same cycle, the accept_len of {theirs.spec.ref} would be worth {span(low, high, 1)} tok/s"
    text += f" against the {measured.tokens_per_s:g} measured"
    even, plain = None, measured.plain_tokens_per_s
    if plain is not None:
        even = break_even(ours.mean, measured.tokens_per_s, plain)
        text += f"; break-even with plain decoding ({plain:g} tok/s) is accept_len {even:.3f}"
    numbers = {"tokens_per_s_low": low, "tokens_per_s_high": high, "break_even": even, "against": theirs.spec.ref}
    return Conclusion("what_if", f"{text}.", numbers)


def _not_comparable(theirs: Rows, ours: Rows, differ: Sequence[str], unstated: Sequence[str]) -> Conclusion:
    pair = f"The figures of {theirs.spec.ref} and {ours.spec.ref}"
    differing, silent = ([_SPOKEN.get(name, name) for name in names] for names in (differ, unstated))
    parts = []
    if differing:
        parts.append(f"are not comparable in full: {', '.join(differing)} differ")
    if silent:
        parts.append(f"do not both state {listed(silent)}")
    numbers = {"reasons": list(differ), "not_stated": list(unstated), "against": theirs.spec.ref}
    return Conclusion("not_comparable", f"{pair} {'; they '.join(parts)}.", numbers)


def _at(rows: Rows) -> str:
    steps = rows.rows[0].steps
    return "" if steps is None else f" at {_steps(steps)}"


def _on(rows: Rows) -> str:
    named, publisher = [row.benchmark for row in rows.rows if row.benchmark], rows.rows[0].publisher
    by = "" if publisher == "author" else f" (measured by {publisher})"
    return (f" on {listed(named)}" if named else "") + by


def _steps(steps: int | None) -> str:
    return f"{steps} step{'' if steps == 1 else 's'}"
