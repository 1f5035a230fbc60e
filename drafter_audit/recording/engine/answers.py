"""The worker's two files of a prompt, checked against what was asked, as the prompt that a recording keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from drafter_audit.errors import CannotRunError
from drafter_audit.measure.loops import loops
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.dumps.dump import Dump
from drafter_audit.recording.dumps.files import read_dump
from drafter_audit.recording.engine.job import Job
from drafter_audit.recording.recording import RecordedPrompt

_MEND = "look at the engine's log, and record with a vLLM that is known to work: docs/recordings.md"


@dataclass(frozen=True)
class Files:
    """Where the worker leaves prompt `index` in `folder`: the answer comes last."""

    folder: Path
    index: int

    @property
    def answer(self) -> Path:
        return self.folder / f"{self.index:05}.safetensors"

    @property
    def states(self) -> Path:
        return self.folder / f"{self.index:05}.states.safetensors"

    def remove(self) -> None:
        self.answer.unlink()
        self.states.unlink()


def read_answer(files: Files, prompt: TokenPrompt, job: Job, keep: tuple[int, ...], dtype: str) -> RecordedPrompt:
    """The prompt with its states at the boundaries `keep`.

    vLLM gives log-probabilities, which are logits less the logsumexp of all: they stand for the logits, and the
    logsumexp is then 0. Whatever is made of logits that does not change when all of them move, is the same. Raises
    CannotRunError, CheckpointError for files that are not the answer to `prompt`.
    """
    said = _tables(files.answer)
    tokens, length = said["tokens"], _length(said["tokens"].tolist(), job)
    _check(said, length, job, files.answer)
    dump = read_dump(files.states)
    whole = torch.cat((torch.tensor(prompt.ids), tokens))
    _check_states(dump, whole[: len(prompt.ids) + length - 1], job, dtype)
    logprobs = said["top_logprobs"]
    return RecordedPrompt(
        id=prompt.id,
        category=prompt.category,
        prompt_length=len(prompt.ids),
        answer_length=length,
        tokens=whole,
        boundaries=keep,
        states=dump.states[[job.boundaries.index(boundary) for boundary in keep]],
        top_ids=said["top_ids"][:length].long(),
        top_logits=logprobs[:length],
        logsumexp=torch.zeros(length),
        gaps=logprobs[:, 0] - logprobs[:, 1],
        capped=int(tokens[length - 1]) not in job.end_ids,
        degenerate=loops(tokens[:length].tolist()),
    )


def _tables(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CannotRunError(f"the engine's answer cannot be read: {error}", str(path), _MEND) from error


def _length(tokens: list[int], job: Job) -> int:
    """Tokens of the answer: through the first end token, or the cap."""
    ends = (place + 1 for place, token in enumerate(tokens) if token in job.end_ids)
    return min(next(ends, job.max_new_tokens), job.max_new_tokens)


def _check(said: dict[str, Tensor], length: int, job: Job, path: Path) -> None:
    """The answer is as long as its end says, and its tokens are the likeliest."""
    count = length + job.lookahead
    shapes = {name: list(said[name].shape) for name in ("tokens", "top_ids", "top_logprobs")}
    if shapes != {"tokens": [count], "top_ids": [count, job.top], "top_logprobs": [count, job.top]}:
        what = f"the engine gave {shapes}, for {count} tokens with {job.top} of the likeliest each"
        raise CannotRunError(what, str(path), _MEND)
    best = said["top_logprobs"]
    if not bool((best[:, :2].isfinite()).all()) or bool((best[:, 1:] > best[:, :-1]).any()):
        raise CannotRunError("log-probabilities that are not finite, or not in order", str(path), _MEND)
    if not torch.equal(said["top_ids"][:, 0].long(), said["tokens"]):
        raise CannotRunError("the engine said tokens that are not its likeliest", str(path), _MEND)


def _check_states(dump: Dump, text: Tensor, job: Job, dtype: str) -> None:
    """There is a state of every token but the last, in the dtype in which the target runs."""
    if not torch.equal(dump.tokens.long(), text):
        what = f"states of {len(dump.tokens)} tokens that are not the {len(text)} of prompt and answer"
        raise CannotRunError(what, dump.where, _MEND)
    if len(dump.states) != len(job.boundaries) or str(dump.states.dtype) != f"torch.{dtype}":
        what = f"{len(dump.states)} states of {dump.states.dtype}, for {len(job.boundaries)} of {dtype}"
        raise CannotRunError(what, dump.where, _MEND)
