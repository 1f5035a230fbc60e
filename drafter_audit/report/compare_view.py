"""A comparison as a document: side by side, published acceptance, findings, differences, and last the conclusions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from drafter_audit.audit.compare import Comparison
from drafter_audit.drafter.boundaries import spelled
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import escape
from drafter_audit.facts.records import AcceptLen, Throughput
from drafter_audit.report.document import Document, Lines, Table, once
from drafter_audit.report.findings_view import findings_block
from drafter_audit.report.numbers import NOTHING, count, plain
from drafter_audit.report.weights_view import weights_blocks, weights_csv

Cell = Callable[[DrafterSpec], str]


class Sources:
    """Sources by number: a table cell holds `[1]`, a list below the tables says what it is."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, source: str | None) -> str:
        return "" if source is None else f"[{self._numbers.setdefault(source, len(self._numbers) + 1)}]"

    def block(self) -> list[Table | Lines]:
        lines = tuple(f"[{number}] {source}" for source, number in self._numbers.items())
        return [Lines(lines, "Sources")] if lines else []


def compare_document(comparison: Comparison) -> Document:
    """All blocks of a comparison; those that would be empty are left out."""
    specs, sources = comparison.drafters, Sources()
    blocks: list[Table | Lines] = [_side_by_side(comparison, sources)]
    blocks += _published(specs, sources)
    blocks += sources.block()
    blocks += findings_block(zip((spec.ref for spec in specs), comparison.findings, strict=True))
    if comparison.differences:
        blocks.append(_differences(comparison))
    blocks += weights_blocks(comparison.weights)
    blocks.append(Lines(tuple(conclusion.text for conclusion in comparison.conclusions), "Conclusions"))
    return Document(tuple(blocks), _csv(comparison))


def _side_by_side(comparison: Comparison, sources: Sources) -> Table:
    changed = {difference.field for difference in comparison.differences}
    rows = []
    for label, field, cell in (*_IDENTITY, *_target_rows(sources), *_SHAPE, *_fact_rows(sources)):
        values = tuple(cell(spec) for spec in comparison.drafters)
        if any(value != NOTHING for value in values):
            rows.append((label, *values, "≠" if field in changed else ""))
    return Table(("", *(spec.ref for spec in comparison.drafters), ""), tuple(rows))


def _arch(name: str) -> tuple[str, str, Cell]:
    return name, f"architecture.{name}", lambda spec: plain(getattr(spec.architecture, name))


def _origin(spec: DrafterSpec) -> str:
    revision = f" @ {spec.revision[:12]}" if spec.revision else ""
    name = "" if spec.name == spec.ref else f": {escape(spec.name)}"
    return f"{spec.source}{name}{revision}"


def _layer_ids(spec: DrafterSpec) -> str:
    aux = spec.aux_layers
    return "not declared" if aux.declared is None else f"{plain(aux.declared)}\n({aux.key})"


def _boundaries(spec: DrafterSpec) -> str:
    aux = spec.aux_layers
    others = "".join(f"\nor {spelled(a.boundaries)} if read as {a.reading}" for a in aux.alternatives)
    return (
        NOTHING
        if aux.boundaries is None
        else f"{spelled(aux.boundaries, spec.target.num_layers)} ({aux.reading}, {aux.confidence} confidence){others}"
    )


def _parameters(name: str) -> tuple[str, str, Cell]:
    return f"  {name}", f"parameters.{name}", lambda spec: count(getattr(spec.parameters, name))


def _stored(spec: DrafterSpec) -> str:
    if not spec.parameters.counted:
        return "not counted (no weights)"
    implied = "" if spec.parameters.counted_from == "headers" else "\n(implied by config.json, no weights read)"
    return count(spec.parameters.stored) + implied


def _evidence(spec: DrafterSpec) -> str:
    return "\n".join(f"{escape(one.tensor)}: {escape(one.words)}" for one in spec.evidence) or NOTHING


def _samples(spec: DrafterSpec) -> str:
    return count(spec.training.samples if spec.training else None)


def _tokens_per_s(measured: Throughput) -> str:
    base = measured.plain_tokens_per_s
    return f"{measured.tokens_per_s:g}" + ("" if base is None else f" (plain {base:g})")


def _accept_len(spec: DrafterSpec) -> str:
    authors = [row.value for row in spec.accept_len if row.publisher == "author"]
    if not authors:
        return NOTHING
    low, high = min(authors), max(authors)
    return f"{low:g}" if low == high else f"{low:.3f}–{high:.3f}"


def _cited(value: str | None, source: str | None, sources: Sources) -> str:
    return NOTHING if value is None else f"{escape(value)} {sources.mark(source)}"


def _target_rows(sources: Sources) -> tuple[tuple[str, str, Cell], ...]:
    return (
        ("target", "target.ref", lambda spec: _cited(spec.target.ref, spec.target.said_by, sources)),
        ("  layers", "target.num_layers", lambda spec: plain(spec.target.num_layers)),
        ("  quantization", "target.quantization", lambda spec: plain(spec.target.quantization)),
    )


def _fact_rows(sources: Sources) -> tuple[tuple[str, str, Cell], ...]:
    """What no weight file tells, each value with its source."""

    def training(spec: DrafterSpec) -> str:
        return _cited(spec.training.dataset, spec.training.source, sources) if spec.training else NOTHING

    def throughput(spec: DrafterSpec) -> str:
        measured = spec.throughput
        return _cited(_tokens_per_s(measured), measured.source, sources) if measured else NOTHING

    return (
        ("training data", "training.dataset", training),
        ("  samples", "training.samples", _samples),
        ("accept_len (author's)", "", _accept_len),
        ("tok/s", "", throughput),
    )


_IDENTITY: tuple[tuple[str, str, Cell], ...] = (
    ("source", "source", _origin),
    ("kind", "kind", lambda spec: spec.kind.name),
    ("dialect", "dialect", lambda spec: spec.dialect.name),
)
_SHAPE: tuple[tuple[str, str, Cell], ...] = (
    _arch("hidden_size"),
    _arch("target_hidden_size"),
    _arch("intermediate_size"),
    _arch("num_layers"),
    _arch("num_attention_heads"),
    _arch("num_key_value_heads"),
    _arch("head_dim"),
    _arch("q_lora_rank"),
    _arch("kv_lora_rank"),
    _arch("vocab_size"),
    _arch("draft_vocab_size"),
    _arch("num_aux_hidden_states"),
    _arch("max_position_embeddings"),
    ("rope", "architecture.rope", lambda spec: plain(spec.architecture.rope.to_dict())),
    _arch("norm_before_residual"),
    _arch("norm_before_fc"),
    _arch("fc_norm"),
    _arch("norm_output"),
    _arch("dtype"),
    ("eagle_layer_ids", "", _layer_ids),
    ("  boundaries", "aux_layers.boundaries", _boundaries),
    ("parameters stored", "parameters.stored", _stored),
    _parameters("trainable"),
    _parameters("frozen"),
    _parameters("unknown"),
    _parameters("borrowed"),
    _parameters("buffers"),
    ("  evidence", "", _evidence),
)


def _published(specs: tuple[DrafterSpec, ...], sources: Sources) -> Iterator[Table | Lines]:
    """The authors' rows, and others' rows of the same setting; how many further rows JSON holds is said."""
    rows, hidden = [], 0
    for spec in specs:
        shown = _shown(spec)
        hidden += len(spec.accept_len) - len(shown)
        rows += [_published_row(spec, row, sources) for row in shown]
    if rows:
        headers = (
            "drafter",
            "benchmark",
            "accept_len",
            "steps",
            "top-k",
            "draft tokens",
            "batch",
            "engine",
            "by",
            "source",
        )
        yield Table(headers, once(rows), "Published accept_len", frozenset({2, 3, 4, 5, 6}))
    if hidden:
        yield Lines((f"{hidden} more rows at other settings: --format json",))


def _shown(spec: DrafterSpec) -> list[AcceptLen]:
    settings = {_setting(row) for row in spec.accept_len if row.publisher == "author"}
    if not settings:
        return list(spec.accept_len)
    return [row for row in spec.accept_len if row.publisher == "author" or _setting(row) in settings]


def _setting(row: AcceptLen) -> tuple[int | None, int | None, int | None]:
    return row.steps, row.topk, row.num_draft_tokens


def _published_row(spec: DrafterSpec, row: AcceptLen, sources: Sources) -> tuple[str, ...]:
    numbers = (row.steps, row.topk, row.num_draft_tokens, row.batch_size)
    return (spec.ref, row.benchmark or NOTHING, f"{row.value:.3f}", *(plain(number) for number in numbers),
            row.engine or NOTHING, row.publisher, sources.mark(row.source))  # fmt: skip


def _differences(comparison: Comparison) -> Table:
    rows = tuple(
        (difference.field, *(_value(difference.field, value) for value in difference.values), difference.why)
        for difference in comparison.differences
    )
    return Table(("field", *(spec.ref for spec in comparison.drafters), "why it matters"), rows, "Differences")


def _value(field: str, value: object) -> str:
    if field == "aux_layers.boundaries" and isinstance(value, tuple):
        return spelled(value)
    counted = field.startswith("parameters.") or field == "training.samples"
    return count(value) if counted and isinstance(value, int) else plain(value)


def _csv(comparison: Comparison) -> Table:
    """One row per field, one column per drafter, dotted paths of the JSON."""
    flat = [_flatten(spec.to_dict()) for spec in comparison.drafters]
    whys = {difference.field: difference.why for difference in comparison.differences}
    fields = list(dict.fromkeys(key for one in flat for key in one))
    rows = tuple((name, *(one.get(name, "") for one in flat), whys.get(name, "")) for name in fields)
    for pair in comparison.weights or ():
        rows += tuple(weights_csv(pair, tuple(spec.ref for spec in comparison.drafters)))
    return Table(("field", *(spec.ref for spec in comparison.drafters), "difference"), rows)


def _flatten(value: object, prefix: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        return {
            k: v for key, item in value.items() for k, v in _flatten(item, f"{prefix}.{key}" if prefix else key).items()
        }
    return {prefix: "" if value is None else value if isinstance(value, str) else json.dumps(value)}
