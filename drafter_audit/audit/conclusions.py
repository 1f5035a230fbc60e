"""What a comparison comes to, in sentences with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drafter_audit.audit.acceptance import conclude_acceptance
from drafter_audit.audit.conclusion import Conclusion, listed, short, verb
from drafter_audit.audit.differences import FIELDS, differences, same_architecture
from drafter_audit.drafter.spec import DrafterSpec


def conclude(specs: Sequence[DrafterSpec]) -> tuple[Conclusion, ...]:
    """Conclusions over all drafters, then each earlier one set against the last."""
    *others, ours = specs
    conclusions = [_architecture(specs)]
    for theirs in others:
        conclusions += [*_sizes(theirs, ours), *_samples(theirs, ours), *conclude_acceptance(theirs, ours)]
        conclusions += _largest(theirs, ours)
    return tuple(conclusions)


def _architecture(specs: Sequence[DrafterSpec]) -> Conclusion:
    if same_architecture(specs):
        arch = specs[0].architecture
        layers = f"{arch.num_layers} layer{'' if arch.num_layers == 1 else 's'}"
        text = f"Same architecture: {specs[0].kind.name}, hidden {arch.hidden_size}, {layers}."
        return Conclusion("same_architecture", text, {"same": True})
    shape = {field.path for field in FIELDS if field.shape}
    fields = [found.field.removeprefix("architecture.") for found in differences(specs) if found.field in shape]
    text = f"Not the same architecture: {listed(fields)} {verb(fields, 'differs', 'differ')}."
    return Conclusion("same_architecture", text, {"same": False})


def _sizes(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    if not (theirs.parameters.counted and ours.parameters.counted):
        return
    stored = ours.parameters.stored - theirs.parameters.stored
    trainable = ours.parameters.trainable - theirs.parameters.trainable
    numbers = {"stored": stored, "not_trainable": stored - trainable, "trainable": trainable, "against": theirs.ref}
    sentences = [_stored_text(theirs, ours), _trainable_text(theirs, ours), _frozen_text(theirs), _frozen_text(ours)]
    yield Conclusion("size_difference", " ".join(sentence for sentence in sentences if sentence), numbers)


def _stored_text(theirs: DrafterSpec, ours: DrafterSpec) -> str:
    sizes = f"{short(ours.parameters.stored)} against {short(theirs.parameters.stored)} in {theirs.ref}"
    difference = ours.parameters.stored - theirs.parameters.stored
    if difference == 0:
        return f"{ours.ref} and {theirs.ref} store the same number of parameters, {short(ours.parameters.stored)}."
    return f"{ours.ref} stores {abs(difference):,} parameters {_more(difference)} ({sizes})."


def _trainable_text(theirs: DrafterSpec, ours: DrafterSpec) -> str:
    open_roles = [spec for spec in (theirs, ours) if spec.parameters.unknown]
    if open_roles:
        roles = listed([f"{short(spec.parameters.unknown)} in {spec.ref}" for spec in open_roles])
        return f"How many of them are trainable is not known: the trainer of {roles} is not."
    difference = ours.parameters.trainable - theirs.parameters.trainable
    trained = short(ours.parameters.trainable)
    if difference == 0:
        same_size = ours.parameters.stored == theirs.parameters.stored
        return f"{trained} are trained in both{'' if same_size else ': none of the difference is trainable'}."
    rule = f"by the rules of {listed(sorted({theirs.dialect.name, ours.dialect.name}))}"
    if theirs.evidence or ours.evidence:
        rule += " and the evidence of the target's rows"
    return f"{abs(difference):,} {_more(difference)} are trainable, {rule}."


def _frozen_text(spec: DrafterSpec) -> str:
    """What a drafter stores besides its own weights, by name."""
    frozen = [tensor for tensor in spec.tensors if tensor.role == "frozen"]
    names = [f"{tensor.name.removesuffix('.weight')} {short(tensor.logical)}" for tensor in frozen[:_NAMED]]
    more = [f"{len(frozen) - _NAMED} more"] if len(frozen) > _NAMED else []
    return f"Frozen in {spec.ref}: {listed(names + more)}." if frozen else ""


_NAMED = 4  # frozen tensors that a sentence names


def _more(difference: int) -> str:
    return "more" if difference > 0 else "fewer"


def _samples(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    first, last = _sample_count(theirs), _sample_count(ours)
    if not first or not last:
        return
    low, high = sorted((first, last))
    more, fewer = (theirs, ours) if first >= last else (ours, theirs)
    text = f"{more.ref} was trained on {high:,} samples, {high / low:.1f} times the {low:,} of {fewer.ref}."
    if low == high:
        text = f"{theirs.ref} and {ours.ref} were trained on {low:,} samples each."
    numbers = {"ratio": high / low, "more": more.ref, "samples": [first, last], "against": theirs.ref}
    yield Conclusion("samples_ratio", text, numbers)


def _sample_count(spec: DrafterSpec) -> int | None:
    return spec.training.samples if spec.training else None


def _largest(theirs: DrafterSpec, ours: DrafterSpec) -> Iterator[Conclusion]:
    """The difference most likely to explain a gap.

    A factor of two or more in training samples or trained capacity comes before a difference in kind, wiring or shape,
    that before a smaller factor; size alone, targets and names explain nothing here.
    """
    ratios = sorted(_ratios(theirs, ours).items(), key=lambda item: -item[1])
    causes = [found.field for found in differences([theirs, ours]) if not found.field.startswith(_NO_CAUSE)]
    numbers: dict[str, object] = {"against": theirs.ref}
    if ratios and (ratios[0][1] >= _LARGE or (ratios[0][1] >= _VISIBLE and not causes)):
        name, ratio = ratios[0]
        numbers, what = numbers | {"field": name, "ratio": ratio}, f"{_PLAIN_NAMES[name]}, by a factor of {ratio:.1f}"
    elif causes:
        numbers, what = numbers | {"field": causes[0]}, causes[0]
    else:
        return
    text = f"The largest identifiable difference between {theirs.ref} and {ours.ref} is in {what}."
    yield Conclusion("largest_difference", text, numbers)


_LARGE, _VISIBLE = 2.0, 1.05  # factors
_NO_CAUSE = ("parameters.", "target.", "training.", "architecture.max_position_embeddings", "architecture.dtype")
_PLAIN_NAMES = {"training.samples": "training samples", "parameters.trainable": "trainable parameters"}


def _ratios(theirs: DrafterSpec, ours: DrafterSpec) -> dict[str, float]:
    """Larger over smaller, for what both state or prove."""
    known = not (theirs.parameters.unknown or ours.parameters.unknown)
    pairs = {
        "training.samples": (_sample_count(theirs), _sample_count(ours)),
        "parameters.trainable": (theirs.parameters.trainable, ours.parameters.trainable) if known else (None, None),
    }
    return {name: max(a, b) / min(a, b) for name, (a, b) in pairs.items() if a and b}
