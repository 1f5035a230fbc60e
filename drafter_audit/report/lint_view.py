"""What `lint` found of each drafter: what it is, what each engine makes of it, findings, and what was not checked."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drafter_audit.audit.finding import SEVERITIES
from drafter_audit.audit.knob_words import in_words
from drafter_audit.audit.lint import Lint
from drafter_audit.audit.written_config import Written
from drafter_audit.drafter.boundaries import spelled
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Difference, Rule, Served
from drafter_audit.errors import escape
from drafter_audit.report.document import Block, Code, Document, Lines, Table
from drafter_audit.report.findings_view import findings_csv, findings_with_fixes
from drafter_audit.report.numbers import NOTHING, plain

_UNNAMED = "No engine was named with --engine: what they would do is shown, and yields no findings."


def lint_document(results: Sequence[Lint], written: Written | None = None) -> Document:
    """All blocks of each drafter; `written` is the folder that --write-config made of the one there is."""
    blocks = tuple(block for result in results for block in _blocks(result))
    found = findings_csv((result.spec.ref, result.findings) for result in results)
    return Document((*blocks, *(_written(written) if written else ())), found)


def lint_result(results: Sequence[Lint], written: Written | None = None) -> dict[str, Any]:
    """The JSON: the object itself for one drafter, `results` for several."""
    told = [result.to_dict() for result in results]
    if written is not None:
        told[0]["written"] = written.to_dict()
    return told[0] if len(told) == 1 else {"results": told}


def _blocks(result: Lint) -> Iterator[Block]:
    yield Lines(tuple(_head(result)), _title(result.spec))
    if result.spec.is_drafter:
        yield _engines(result)
        if not result.named:
            yield Lines((_UNNAMED,))
        yield from _named(result)
    yield from findings_with_fixes(result.findings)
    if result.not_checked:
        yield Lines(result.not_checked, "Not checked")
    yield Lines((_count(result),))


def _title(spec: DrafterSpec) -> str:
    return f"{spec.ref} ({spec.kind.name}, {spec.dialect.name}{f', {spec.revision[:12]}' if spec.revision else ''})"


def _head(result: Lint) -> Iterator[str]:
    spec = result.spec
    target, aux = spec.target, spec.aux_layers
    if not spec.is_drafter:
        yield "It is not known to be a drafter: what bears on drafters alone is not looked at."
        return
    layers = f", {target.num_layers} layers" if target.num_layers else ""
    yield f"target: {escape(target.ref or 'unknown')}{layers}; level of knowledge: {result.level}"
    if spec.kind.traits.reads_aux:
        ids = "no layer ids" if aux.declared is None else f"layer ids {plain(aux.declared)} of {escape(aux.key or '')}"
        yield (
            f"boundaries: {spelled(aux.boundaries, target.num_layers)} ({ids}: {aux.reading}, {aux.confidence} "
            f"confidence, {escape(aux.why)})"
        )
        for other in aux.alternatives:
            yield f"or {spelled(other.boundaries, target.num_layers)}, read as {other.reading}"


def _engines(result: Lint) -> Table:
    headers = ("engine", "version", "loads", "boundaries", "differs", "evidence")
    layers = result.spec.target.num_layers
    return Table(headers, tuple(_engine_row(served, layers) for served in result.engines), "Engines")


def _engine_row(served: Served, layers: int | None) -> tuple[str, ...]:
    release, loads = served.release, served.effect.loads
    return (
        release.engine + (f" {release.runner}" if release.runner else ""),
        release.version,
        "unknown" if loads is None else "yes" if loads else "no",
        NOTHING if served.boundaries is None else spelled(served.boundaries, layers),
        "\n".join(_apart(served)) or NOTHING,
        served.proof,
    )


def _apart(served: Served) -> Iterator[str]:
    yield from (f"{d.knob}{'' if d.mended else ' (no edit mends it)'}" for d in served.differs)
    yield from (f"fault: {rule.name}" for rule, _ in served.effect.faults)


def _named(result: Lint) -> Iterator[Block]:
    """For each engine that was named: the wiring where it departs, and the config to write."""
    for served in result.engines if result.named else ():
        if served.differs:
            label = served.release.label
            headers = ("knob", "declared", f"in {label}", "by rule")
            yield Table(headers, tuple(map(_knob_row, served.differs)), f"Wiring under {label}")
            yield Lines(tuple(dict.fromkeys(_source(d.rule) for d in served.differs if d.rule)))
    if result.named:
        yield from _configs(result)


def _configs(result: Lint) -> Iterator[Code]:
    """The edit for each release, once for runners that need the same."""
    needed: dict[tuple[str, str], list[str]] = {}
    for served in result.engines:
        if served.edit:
            release = f"{served.release.engine}@{served.release.version}"
            needed.setdefault((release, _laid_out(served.edit)), []).append(served.release.label)
    for (release, text), labels in needed.items():
        label = labels[0] if len(labels) == 1 else release
        yield Code(text, "json", f"To set in config.json for {label}, null to remove a key")


def _laid_out(edit: Mapping[str, Any]) -> str:
    """The edit as config files are laid out, but with each list of numbers on one line."""
    return re.sub(
        r"\[[\s\d,.-]*\]",
        lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"),
        json.dumps(edit, indent=2),
    )


def _knob_row(difference: Difference) -> tuple[str, ...]:
    rule = difference.rule
    by = NOTHING if rule is None else f"{rule.name}, {rule.proof}"
    return difference.knob, in_words(difference.declared), in_words(difference.effective), by


def _source(rule: Rule) -> str:
    return f"{rule.name}: {rule.source}"


def _written(written: Written) -> Iterator[Block]:
    yield Lines(written.remarks, "Written")
    if written.diff:
        yield Code(written.diff, "diff")


def _count(result: Lint) -> str:
    counts = Counter(finding.severity for finding in result.findings)
    told = [f"{counts[each]} {each}{'s' if counts[each] != 1 and each != 'info' else ''}" for each in SEVERITIES]
    return f"{', '.join(told)}."
