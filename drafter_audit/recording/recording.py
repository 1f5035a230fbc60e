"""A recording as it is read: one target's own answers to prompts, with its states and what it thought of each token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from drafter_audit.recording.manifest import Manifest


@dataclass(frozen=True)
class RecordedPrompt:
    """One prompt with P tokens and its answer of N, through the end token or the cap.

    `tokens` int64 [P + N + lookahead]: prompt, answer, and what the target would have said next. `states` [boundaries,
    P + N - 1, hidden]: row t is the state of token t, in the order of `boundaries`, in the target's dtype. Row i of
    `top_ids` int64 [N, k], `top_logits` float32 [N, k] (descending) and `logsumexp` float32 [N] is the distribution
    from which answer token i came: that at position P - 1 + i. `gaps` float32 [N + lookahead]: how far the likeliest
    logit stood above the second, for each token after the prompt. `last_normed` [P + N - 1, hidden] is the state at
    boundary L behind the target's final norm, None where that boundary, or that state of it, is not there.
    """

    id: str
    category: str | None
    prompt_length: int
    answer_length: int
    tokens: Tensor
    boundaries: tuple[int, ...]
    states: Tensor
    top_ids: Tensor
    top_logits: Tensor
    logsumexp: Tensor
    gaps: Tensor
    capped: bool
    degenerate: bool
    last_normed: Tensor | None = None


@dataclass(frozen=True)
class Recording:
    """A folder with a manifest and a file for each prompt. `open_recording` makes it."""

    folder: Path
    manifest: Manifest

    @property
    def lacks(self) -> tuple[str, ...]:
        """What keeps a replay of it from counting what a live loop would, in words: nothing, where `record` made it."""
        return ()

    def prompts(self, boundaries: Sequence[int] | None = None) -> Iterator[RecordedPrompt]:
        """One after another, in the order of the prompt set: only one is in memory.

        With `boundaries` only those states are read, in that order. Raises RecordingError for one that a prompt does
        not have, and for a damaged file.
        """
        from drafter_audit.recording.prompt_file import read_prompt

        for answer in self.manifest.answers:
            yield read_prompt(self.folder / answer.file, boundaries)
