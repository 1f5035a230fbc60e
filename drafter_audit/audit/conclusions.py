"""What a comparison comes to, in sentences with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drafter_audit.audit.comparability import Rows, pair_rows, reasons_not_comparable
from drafter_audit.audit.differences import FIELDS, Difference, same_architecture
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.measure.step_bounds import Bounds, bound_accept_len, break_even, tokens_per_s_at

_SPOKEN = {"quantization": "quantisation", "batch": "batch size", "topk": "top-k"}


@dataclass(frozen=True)
class Conclusion:
    """A code from the closed list, a sentence, and the numbers it rests on. The last drafter is "ours"."""

    code: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "text": self.text, "numbers": dict(self.numbers)}


def conclude(specs: Sequence[DrafterSpec], found: Sequence[Difference]) -> tuple[Conclusion, ...]:
    """Conclusions over all drafters, then each earlier one set against the last."""
    *others, ours = specs
    conclusions = [_architecture(specs, found)]
    for theirs in others:
        conclusions += [*_sizes(theirs, ours), *_samples(theirs, ours), *_acceptance(theirs, ours)]
        conclusions += _largest(theirs, ours, found)
    return tuple(conclusions)


def _architecture(specs: Sequence[DrafterSpec], found: Sequence[Difference]) -> Conclusion:
    same = same_architecture(specs)
    if same:
        arch = specs[0].architecture
        layers = f"{arch.num_layers} layer{'' if arch.num_layers == 1 else 's'}"
        text = f"Same architecture: {specs[0].kind.name}, hidden {arch.hidden_size}, {layers}."
        return Conclusion("same_architecture", text, {"same": True})
    shape = {field.path for field in FIELDS if field.shape}
    fields = [difference.field.removeprefix("architecture.") for difference in found if difference.field in shape]
    return Conclusion(
        "same_architecture", f"Not the same architecture: {_listed(fields)} {_differ(fields)}.", {"same": False}
    )


def _sizes(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    if not (theirs.parameters.counted and ours.parameters.counted):
        return
    stored = ours.parameters.stored - theirs.parameters.stored
    trainable = ours.parameters.trainable - theirs.parameters.trainable
    numbers = {"stored": stored, "not_trainable": stored - trainable, "trainable": trainable, "against": theirs.ref}
    yield Conclusion("size_difference", _size_text(theirs, ours, stored, trainable), numbers)


def _size_text(theirs: DrafterSpec, ours: DrafterSpec, stored: int, trainable: int) -> str:
    sizes = f"{_short(theirs.parameters.stored)} against {_short(ours.parameters.stored)} stored"
    if stored == 0 and trainable == 0:
        return f"Same size: {sizes}."
    text = f"{ours.ref} stores {abs(stored):,} parameters {'more' if stored > 0 else 'fewer'} ({sizes})"
    if trainable == 0:
        text += f", none of them trainable: {_short(ours.parameters.trainable)} are trained in both"
    else:
        text += f"; {abs(trainable):,} {'more' if trainable > 0 else 'fewer'} are trainable"
    return f"{text}.{_frozen(theirs)}{_frozen(ours)}"


def _frozen(spec: DrafterSpec) -> str:
    """What a drafter stores besides its own weights, by name."""
    frozen = [tensor for tensor in spec.tensors if tensor.role == "frozen"]
    parts = (f"{tensor.name.removesuffix('.weight')} {_short(tensor.logical)}" for tensor in frozen[:_NAMED])
    more = f" and {len(frozen) - _NAMED} more" if len(frozen) > _NAMED else ""
    return f" Frozen in {spec.ref}: {', '.join(parts)}{more}." if frozen else ""


_NAMED = 4  # frozen tensors that a sentence names


def _samples(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    first, last = _sample_count(theirs), _sample_count(ours)
    if not first or not last:
        return
    low, high = sorted((first, last))
    more, fewer = (theirs, ours) if first >= last else (ours, theirs)
    text = f"{more.ref} was trained on {high:,} samples, {high / low:.1f} times the {low:,} of {fewer.ref}."
    if low == high:
        text = f"Both were trained on {low:,} samples."
    numbers = {"ratio": high / low, "more": more.ref, "samples": [first, last], "against": theirs.ref}
    yield Conclusion("samples_ratio", text, numbers)


def _sample_count(spec: DrafterSpec) -> int | None:
    return spec.training.samples if spec.training else None


def _acceptance(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    pair = pair_rows(theirs, ours)
    if pair is None:
        return
    bounds = _bounds(*pair)
    yield _gap(*pair, bounds)
    if bounds is not None and ours.throughput is not None:
        yield _what_if(*pair, bounds)
    differ, unstated = reasons_not_comparable(*pair)
    if differ or unstated:
        yield _not_comparable(pair[0], differ, unstated)


def _bounds(theirs: Rows, ours: Rows) -> Bounds | None:
    """Theirs at our step count; None where a tree or an unstated step count allows no bound."""
    steps, to_steps = theirs.chain_steps, ours.chain_steps
    if steps is None or to_steps is None:
        return None
    return bound_accept_len(theirs.low, theirs.high, steps=steps, to_steps=to_steps)


def _gap(theirs: Rows, ours: Rows, bounds: Bounds | None) -> Conclusion:
    numbers = {
        "ours": _one(ours),
        "theirs_low": theirs.low,
        "theirs_high": theirs.high,
        "bounded_low": bounds.low if bounds else None,
        "bounded_high": bounds.high if bounds else None,
        "ours_steps": ours.rows[0].steps,
        "theirs_steps": theirs.rows[0].steps,
        "against": theirs.spec.ref,
        "source": theirs.rows[0].source,
    }
    text = f"accept_len {_span(ours.low, ours.high)}{_at(ours)}"
    text += f" against {_span(theirs.low, theirs.high)}{_at(theirs)}{_on(theirs)}"
    if bounds is None:
        return Conclusion("accept_len_gap", f"{text}; no bound can be given without both chains' step counts.", numbers)
    if theirs.chain_steps != ours.chain_steps:
        text += f", which at {_steps(ours.chain_steps)} lies in [{bounds.low:.3f}, {bounds.high:.3f}]"
    return Conclusion("accept_len_gap", f"{text}.", numbers)


def _what_if(theirs: Rows, ours: Rows, bounds: Bounds) -> Conclusion:
    throughput, measured = ours.spec.throughput, _one(ours)
    assert throughput is not None
    low, high = (tokens_per_s_at(value, measured=measured, tokens_per_s=throughput.tokens_per_s)
                 for value in (bounds.low, bounds.high))  # fmt: skip
    text = f"At the same cycle, {theirs.spec.ref}'s accept_len would be worth {_span(low, high, 1)} tok/s"
    text += f" against the {throughput.tokens_per_s:g} measured"
    even = None
    if throughput.plain_tokens_per_s is not None:
        even = break_even(measured, throughput.tokens_per_s, throughput.plain_tokens_per_s)
        text += f"; break-even with plain decoding ({throughput.plain_tokens_per_s:g} tok/s) is accept_len {even:.3f}"
    numbers = {"tokens_per_s_low": low, "tokens_per_s_high": high, "break_even": even, "against": theirs.spec.ref}
    return Conclusion("what_if", f"{text}.", numbers)


def _not_comparable(theirs: Rows, differ: Sequence[str], unstated: Sequence[str]) -> Conclusion:
    parts = []
    if differ:
        parts.append(f"the figures are not comparable in full: {_listed(differ)} {_differ(differ)}")
    if unstated:
        parts.append(f"{_listed(unstated)} {'is' if len(unstated) == 1 else 'are'} not stated by both")
    text = "; ".join(parts)
    numbers = {"reasons": list(differ), "not_stated": list(unstated), "against": theirs.spec.ref}
    return Conclusion("not_comparable", f"{text[0].upper()}{text[1:]}.", numbers)


def _largest(theirs: DrafterSpec, ours: DrafterSpec, found: Sequence[Difference]) -> Iterator[Conclusion]:
    """The difference most likely to explain a gap.

    A factor of two or more in training samples or trained capacity comes before a difference in kind, wiring or shape,
    that before a smaller factor; size alone, targets and names explain nothing here.
    """
    ratios = sorted(_ratios(theirs, ours).items(), key=lambda item: -item[1])
    causes = [difference.field for difference in found if not difference.field.startswith(_NO_CAUSE)]
    if ratios and (ratios[0][1] >= 2 or (ratios[0][1] > 1 and not causes)):
        name, ratio = ratios[0]
        text = f"The largest identifiable difference is {_PLAIN_NAMES[name]}: a factor of {ratio:.1f}."
        yield Conclusion("largest_difference", text, {"field": name, "ratio": ratio, "against": theirs.ref})
    elif causes:
        text = f"The largest identifiable difference is {causes[0]}."
        yield Conclusion("largest_difference", text, {"field": causes[0], "against": theirs.ref})


_NO_CAUSE = ("parameters.", "target.", "training.")
_PLAIN_NAMES = {"training.samples": "training samples", "parameters.trainable": "trainable parameters"}


def _ratios(theirs: DrafterSpec, ours: DrafterSpec) -> dict[str, float]:
    """Larger over smaller, for what both state."""
    pairs = {
        "training.samples": (_sample_count(theirs), _sample_count(ours)),
        "parameters.trainable": (theirs.parameters.trainable, ours.parameters.trainable),
    }
    return {name: max(a, b) / min(a, b) for name, (a, b) in pairs.items() if a and b}


def _one(rows: Rows) -> float:
    return rows.rows[0].value if len(rows.rows) == 1 else rows.mean


def _at(rows: Rows) -> str:
    steps = rows.rows[0].steps
    return "" if steps is None else f" at {_steps(steps)}"


def _on(rows: Rows) -> str:
    named = [row.benchmark for row in rows.rows if row.benchmark]
    return f" on {', '.join(named)}" if named else ""


def _steps(steps: int | None) -> str:
    return f"{steps} step{'' if steps == 1 else 's'}"


def _span(low: float, high: float, digits: int = 3) -> str:
    if low == high:
        return f"{low:.{digits}f}".rstrip("0").rstrip(".") if digits > 1 else f"{low:.{digits}f}"
    return f"{low:.{digits}f}–{high:.{digits}f}"


def _differ(names: Sequence[str]) -> str:
    return "differs" if len(names) == 1 else "differ"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_SPOKEN.get(name, name) for name in names)


def _short(count: int) -> str:
    return f"{count / 1e9:.3f}B" if count >= 1e9 else f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count:,}"
