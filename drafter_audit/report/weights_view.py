"""The block of `compare --weights`: which tensors differ and how, the config's keys, and what that comes to."""

from __future__ import annotations

import json
from collections.abc import Iterator

from drafter_audit.audit.conclusion import listed
from drafter_audit.audit.weights import ConfigKey, Kind, TensorDifference, WeightsComparison
from drafter_audit.drafter.names import canonical, layer_index
from drafter_audit.errors import escape
from drafter_audit.report.document import Lines, Table
from drafter_audit.report.numbers import NOTHING, count, size

_SHOWN = 40  # tensors in a table; JSON holds all
_NAMED = 4  # names in a sentence
_ORDERS = {
    "rows": "its rows in another order",
    "heads": "its heads in another order",
    "rope_interleave": "its rows interleaved on one side for RoPE, as GGUF stores them",
}
_WORDS: dict[Kind, str] = {
    "other_shape": "of another shape",
    "non_finite": "differs, figures are of its finite rows",
    "not_compared": "not compared",
    "bytes_differ": "not the same bytes",
    "nearly_equal": "nearly equal",
    "equal_after_cast": "equal after a cast",
    "bitwise_equal": "equal",
}


def weights_blocks(comparisons: tuple[WeightsComparison, ...] | None) -> Iterator[Table | Lines]:
    """For each earlier checkpoint: its tensors that differ or were not compared, its config keys, and sentences."""
    for found in comparisons or ():
        title = f"Weights of {found.ours} against {found.against}"
        unequal = _unequal(found)
        if unequal:
            yield Table(
                ("tensor", "how", "norm ratio", "max abs", "cosine", "rows differing", "stored as"),
                tuple(_row(tensor) for tensor in unequal[:_SHOWN]),
                title,
                frozenset({2, 3, 4, 5}),
            )
        if found.config_keys:
            headers = ("key of config.json", found.against, found.ours)
            yield Table(headers, tuple(_key_row(key) for key in found.config_keys))
        yield Lines(tuple(_sentences(found)), None if unequal else title)


def summary(found: WeightsComparison) -> str:
    """The one sentence that answers: how many tensors and config keys differ, the keys by name."""
    tensors = len(found.differing) + len(found.only_theirs) + len(found.only_ours)
    keys = len(found.config_keys)
    text = f"{_plural(tensors, 'tensor')} and {_plural(keys, 'config key')} differ"
    return text + (f": {_names([key.key for key in found.config_keys])}." if keys else ".")


def _unequal(found: WeightsComparison) -> list[TensorDifference]:
    return [tensor for tensor in found.tensors if not tensor.equal]


def weights_csv(found: WeightsComparison, refs: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Rows for the CSV of compare: field, one cell for each drafter, what differs."""

    def cells(theirs: str, ours: str) -> tuple[str, ...]:
        return *(theirs if ref == found.against else "" for ref in refs[:-1]), ours

    for tensor in found.tensors:
        if not tensor.identical:
            theirs, ours = (f"{dtype} {list(shape)}" for dtype, shape in zip(tensor.dtypes, tensor.shapes, strict=True))
            yield f"weights.{tensor.ours_name}", *cells(theirs, ours), "; ".join(_csv_how(tensor))
    for name in found.only_theirs:
        yield f"weights.{name}", *cells("stored", ""), "only in theirs"
    for name in found.only_ours:
        yield f"weights.{name}", *cells("", "stored"), "only in ours"
    if found.vocabulary is not None:
        for name, value in found.vocabulary.to_dict().items():
            yield f"weights.vocabulary.{name}", *cells("", json.dumps(value)), ""
    for key in found.config_keys:
        yield f"config.{key.key}", *cells(*(_value(value) for value in key.values)), "as written"


def _row(tensor: TensorDifference) -> tuple[str, ...]:
    return (
        _name(tensor),
        _how(tensor),
        _figure(tensor.norm_ratio),
        NOTHING if tensor.max_abs is None else f"{tensor.max_abs:.4g}",
        _figure(tensor.cosine),
        _rows_differing(tensor),
        _stored_as(tensor),
    )


def _name(tensor: TensorDifference) -> str:
    names = dict.fromkeys((escape(tensor.name), escape(tensor.ours_name)))
    return "\n-> ".join(names)


def _how(tensor: TensorDifference) -> str:
    if tensor.permutation is not None:
        return f"the same but for order: {_ORDERS[tensor.permutation]}"
    by = ", matched by token" if tensor.matched_by == "token" else ""
    if tensor.kind == "scaled":
        return f"scaled by {tensor.scale:.6g}{by}"
    infinite = f", {_plural(tensor.non_finite, 'value')} NaN or infinite" if tensor.non_finite else ""
    return _WORDS.get(tensor.kind, tensor.kind) + by + infinite


def _csv_how(tensor: TensorDifference) -> Iterator[str]:
    yield _how(tensor) if tensor.reason is None else f"{_how(tensor)}: {tensor.reason}"
    for name in ("norm_ratio", "max_abs", "cosine", "rows_differing", "rows"):
        value = getattr(tensor, name)
        if value is not None:
            yield f"{name} {value!r}"


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.6f}"


def _rows_differing(tensor: TensorDifference) -> str:
    if tensor.rows_differing is None:
        return NOTHING
    some = len(tensor.first_differing) == tensor.rows_differing < (tensor.rows or 0)
    named = f"\n({', '.join(map(str, tensor.first_differing))})" if some else ""
    return f"{count(tensor.rows_differing)} of {count(tensor.rows)}{named}"


def _stored_as(tensor: TensorDifference) -> str:
    pairs = zip(tensor.dtypes, tensor.shapes, strict=True)
    return "\n-> ".join(dict.fromkeys(f"{dtype} {list(shape)}" for dtype, shape in pairs))


def _key_row(key: ConfigKey) -> tuple[str, ...]:
    return escape(key.key), *(NOTHING if value is None else _value(value) for value in key.values)


def _value(value: object) -> str:
    return "" if value is None else escape(value) if isinstance(value, str) else json.dumps(value)


def _sentences(found: WeightsComparison) -> Iterator[str]:
    yield summary(found)
    yield from _not_compared(found)
    yield from _hidden(found)
    yield from _cast(found)
    yield from _unrelated(found)
    yield from _one_sided(found)
    yield from _vocabulary(found)
    yield from (escape(note) for note in found.notes)
    yield f"{size(found.bytes_read)} read."


def _not_compared(found: WeightsComparison) -> Iterator[str]:
    """How many tensors may differ for all that is known, by name: with --exit-code they make it 1."""
    unread = found.of_kind("not_compared")
    if unread:
        names = _names([f"{tensor.ours_name} ({tensor.reason})" for tensor in unread])
        yield f"{_plural(len(unread), 'tensor')} not compared, so not known to be equal: {names}."


def _hidden(found: WeightsComparison) -> Iterator[str]:
    hidden = len(_unequal(found)) - _SHOWN
    if hidden > 0:
        yield f"{_plural(hidden, 'more tensor')} not shown: --format json lists them."


def _cast(found: WeightsComparison) -> Iterator[str]:
    if found.cast:
        pairs = dict.fromkeys(f"{theirs} to {ours}" for theirs, ours in (tensor.dtypes for tensor in found.cast))
        tensors = _plural(len(found.cast), "tensor")
        yield f"{tensors} equal after a cast ({', '.join(pairs)}) and not counted as differing."


def _unrelated(found: WeightsComparison) -> Iterator[str]:
    """Names the unrelated tensors, and the likely cause where they are those of the layers and the rest came over."""
    unrelated = found.of_kind("unrelated")
    if unrelated:
        yield f"Unrelated to {found.against}: {_names([tensor.ours_name for tensor in unrelated])}."
    in_layers = all(layer_index(canonical(tensor.name)) is not None for tensor in unrelated)
    kept = [tensor for tensor in found.tensors if tensor.equal and tensor.norm_ratio is not None]
    if unrelated and in_layers and kept and len(unrelated) == len(_unequal(found)):
        yield "All outside the layers is equal: a converter that loses names leaves it so, and saves fresh layers."


def _one_sided(found: WeightsComparison) -> Iterator[str]:
    for ref, names in ((found.against, found.only_theirs), (found.ours, found.only_ours)):
        if names:
            yield f"Only in {ref}: {_names(list(names))}."


def _vocabulary(found: WeightsComparison) -> Iterator[str]:
    changed = found.vocabulary
    if changed is not None and not changed.same_map:
        yield (
            f"The draft vocabulary differs: {_plural(changed.moved, 'row')} moved, {changed.added:,} added, "
            f"{changed.removed:,} removed."
        )
    for head in (tensor for tensor in found.tensors if tensor.matched_by == "token"):
        theirs, ours = (count(shape[0]) for shape in head.shapes)
        yield (
            f"{escape(head.ours_name)} is compared by the token that a row stands for, over {count(head.rows)} of "
            f"{theirs} rows of theirs and {ours} of ours."
        )


def _names(names: list[str]) -> str:
    shown = [escape(name) for name in names[:_NAMED]]
    return listed(shown + ([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []))


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
