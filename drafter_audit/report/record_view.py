"""A recording as a document: what it holds, and what became of each prompt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drafter_audit.drafter.boundaries import spelled
from drafter_audit.measure.bars import LEAST_PROMPTS
from drafter_audit.measure.loops import why_not_measured
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.recording import Recording
from drafter_audit.report.document import Document, Table
from drafter_audit.report.numbers import NOTHING, count, plain, size


def record_document(recording: Recording) -> Document:
    """What was recorded; as CSV one row for each prompt."""
    rows = tuple((name, value) for name, value in _rows(recording.manifest))
    return Document((Table(("", "recorded"), rows, str(recording.folder)),), _csv(recording.manifest))


def record_result(recording: Recording) -> dict[str, Any]:
    """The JSON of `record`."""
    manifest = recording.manifest
    answers = manifest.answers
    target = ("revision", "dtype", "quantization", "num_layers", "hidden_size", "vocab_size")
    how = ("boundaries", "all_tokens", "max_new_tokens", "lookahead", "top", "temperature", "seed", "thinking", "raw")
    capped = sum(answer.capped for answer in answers)
    return {
        "recording": str(recording.folder),
        "target": {"ref": manifest.target, **{name: getattr(manifest, name) for name in target}},
        "engine": manifest.engine
        and {"name": manifest.engine, "version": _version(manifest), "args": list(manifest.engine_args)},
        "prompts": {"name": manifest.prompts_name, "sha256": manifest.prompts_sha256, "count": manifest.count},
        **{name: getattr(manifest, name) for name in how},
        "prompt_tokens": sum(answer.prompt_length for answer in answers),
        "tokens": sum(answer.answer_length for answer in answers),
        "stop": {"eos": len(answers) - capped, "cap": capped},
        "degenerate": sum(answer.degenerate for answer in answers),
        "bytes": sum(answer.nbytes for answer in answers),
        "per_prompt": [
            {
                "id": answer.id,
                "category": answer.category,
                "prompt_tokens": answer.prompt_length,
                "tokens": answer.answer_length,
                "capped": answer.capped,
                "degenerate": answer.degenerate,
                "boundaries": list(answer.boundaries),
            }
            for answer in answers
        ],
        "notes": list(manifest.notes),
    }


def record_remarks(recording: Recording) -> Iterator[str]:
    """What of prompts, target and answers a reader must know before replaying them."""
    answers = recording.manifest.answers
    yield from recording.manifest.notes
    why = why_not_measured(answers)
    if why is not None:
        yield f"{why}: raise --max-new-tokens, or choose other prompts; decode and sweep end with exit code 3 on these"
    long = sum(answer.answer_length > 1 for answer in answers)
    if long < 2 * LEAST_PROMPTS:
        yield f"{long} answers of two tokens or more: below {2 * LEAST_PROMPTS} wiring decides little, and ends with 3"


def _rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    answers = manifest.answers
    yield "target", f"{manifest.target} {(manifest.revision or '')[:12]}".strip()
    if manifest.engine:
        yield "run by", " ".join((manifest.engine, _version(manifest), *manifest.engine_args))
    yield "dtype", f"{manifest.dtype}, quantization {manifest.quantization or NOTHING}"
    yield "prompts", f"{count(manifest.count)} of {manifest.prompts_name}, sha256 {manifest.prompts_sha256[:12]}"
    yield "asked", _asked(manifest)
    yield "prompt tokens", count(sum(answer.prompt_length for answer in answers))
    yield "answer tokens", f"{count(sum(answer.answer_length for answer in answers))}, {_way(manifest)}"
    yield "hit the cap", f"{count(sum(answer.capped for answer in answers))}, of {manifest.max_new_tokens} tokens"
    yield "loop", count(sum(answer.degenerate for answer in answers))
    yield "boundaries", _boundaries(manifest)
    yield "beyond each answer", f"{manifest.lookahead} tokens"
    thought = "with log-probabilities" if manifest.engine else "and the logsumexp"
    yield "of each token", f"the likeliest {manifest.top} {thought}"
    yield "size", size(sum(answer.nbytes for answer in answers))


def _version(manifest: Manifest) -> str:
    """The engine's: vLLM's CPU build goes by a name of its own."""
    libraries = manifest.libraries
    return next((libraries[name] for name in (str(manifest.engine), f"{manifest.engine}-cpu") if name in libraries), "")


def _asked(manifest: Manifest) -> str:
    if manifest.tokenizer_sha256 is None:
        return "as token ids"
    if manifest.raw:
        return "as bare text, without the chat template"
    thinking = "" if manifest.thinking is None else f", thinking {plain(manifest.thinking)}"
    return f"by the chat template{thinking}"


def _way(manifest: Manifest) -> str:
    sampled = f"sampled at {manifest.temperature:g}, seed {manifest.seed}"
    return sampled if manifest.temperature else "greedy"


def _boundaries(manifest: Manifest) -> str:
    every = sum(len(answer.boundaries) == manifest.num_layers + 1 for answer in manifest.answers)
    also = f"; all of the first {every} prompts" if manifest.all_tokens else ""
    return spelled(manifest.boundaries, manifest.num_layers) + also


def _csv(manifest: Manifest) -> Table:
    headers = ("id", "category", "prompt_tokens", "tokens", "capped", "degenerate", "boundaries", "bytes")
    rows = tuple(
        (
            answer.id,
            answer.category or "",
            str(answer.prompt_length),
            str(answer.answer_length),
            str(answer.capped).lower(),
            str(answer.degenerate).lower(),
            " ".join(map(str, answer.boundaries)),
            str(answer.nbytes),
        )
        for answer in manifest.answers
    )
    return Table(headers, rows)
