"""One text of a dump, and the RecordedPrompt that it becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.errors import CheckpointError, InputsError
from drafter_audit.measure.loops import loops
from drafter_audit.recording.recording import RecordedPrompt

LOOKAHEAD = 16
"""Tokens at a text's end that are taken for what the target said past its answer, as a recording holds them."""


@dataclass(frozen=True)
class Dump:
    """`tokens` int64 [T]; `states` [slots, T, hidden], row t the state of token t, in the order of the file.

    `normed` [T, hidden] is the state behind the final norm, which is no boundary; `loss_mask` bool [T] says which
    tokens are answers. Each is None where the file has none. `where` is the file.
    """

    where: str
    tokens: Tensor
    states: Tensor
    normed: Tensor | None = None
    loss_mask: Tensor | None = None

    def __post_init__(self) -> None:
        length, shape = len(self.tokens), list(self.states.shape)
        if self.tokens.dim() != 1 or length < 2 or len(shape) != 3 or shape[1] != length or 0 in shape:
            what = f"states of {shape} for tokens of {list(self.tokens.shape)}"
            raise CheckpointError(what, self.where, "dump states [slots, tokens, hidden] of one text of two tokens")
        if self.tokens.is_floating_point() or int(self.tokens.min()) < 0:
            raise CheckpointError("tokens that are no ids", self.where, "dump the text's token ids")
        for name, beside in (("the last states", self.normed), ("the loss mask", self.loss_mask)):
            if beside is not None and len(beside) != length:
                raise CheckpointError(f"{name} of {len(beside)} for {length} tokens", self.where, "dump it anew")
        if not bool(torch.isfinite(self.states.float()).all()):
            raise CheckpointError("states that are not finite", self.where, "dump it anew")

    @property
    def answer(self) -> tuple[int, int] | None:
        """Start and stop of the first run of tokens that the loss mask counts, None where there is none."""
        counted = [] if self.loss_mask is None else self.loss_mask.tolist()
        if True not in counted:
            return None
        start = counted.index(True)
        return start, counted.index(False, start) if False in counted[start:] else len(counted)

    def notes(self) -> Iterator[str]:
        """What a replay of it rests on, in words."""
        yield "the text is what was dumped: whether the target would say it is not known, nor how sure it was"
        if self.answer is None:
            yield "where the answer begins is not in the dump: all behind the first token is taken for it"
        else:
            yield "of each text the first answer is taken, as its loss mask has it"


def as_recorded(dump: Dump, id: str, boundaries: Sequence[int], lookahead: int = LOOKAHEAD) -> RecordedPrompt:
    """The text as a recorded prompt, whose slot i is `boundaries[i]`.

    The last `lookahead` tokens of the answer stand for what the target would have said next. There are no logits: k is
    0 in `top_ids`, `top_logits`; `logsumexp` and `gaps` are NaN. Raises InputsError for another number of boundaries or
    an answer too short.
    """
    slots, (prompt, end) = len(dump.states), dump.answer or (1, len(dump.tokens))
    prompt = max(prompt, 1)  # the first token answers nothing
    if len(boundaries) != slots or len(set(boundaries)) != slots or min(boundaries) < 0:
        what = f"boundaries {list(boundaries)} for {slots} slots"
        raise InputsError(what, dump.where, "name one boundary for each slot, or match the dump with a recording")
    answer = end - prompt - lookahead
    if answer < 1:
        what = f"an answer of {end - prompt} tokens, of which {lookahead} are look-ahead"
        raise InputsError(what, dump.where, "leave the text out, or ask for less look-ahead")
    return RecordedPrompt(
        id=id,
        category=None,
        prompt_length=prompt,
        answer_length=answer,
        tokens=dump.tokens[:end].long(),
        boundaries=tuple(boundaries),
        states=dump.states[:, : prompt + answer - 1],
        top_ids=torch.empty((answer, 0), dtype=torch.int64),
        top_logits=torch.empty((answer, 0)),
        logsumexp=torch.full((answer,), torch.nan),
        gaps=torch.full((answer + lookahead,), torch.nan),
        capped=False,
        degenerate=loops(dump.tokens[prompt:end].tolist()),
    )
