"""How a text is decoded: what the live loop is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from drafter_audit.errors import UsageError
from drafter_audit.measure.shape import Shape, shape_of


@dataclass(frozen=True)
class Settings:
    """`steps` drafts a round; at most `max_new_tokens` emitted; `temperature` 0 is greedy, above it drafts are the
    drafter's argmax and the rest is drawn, by `seed` and each prompt's id.

    `plain` also decodes without the drafter, for speed and to be compared with. `ignore_end` decodes up to
    `max_new_tokens` whatever is emitted. `topk` above 1 makes rounds trees, of which `num_draft_tokens` are verified,
    greedily alone. Raises UsageError.
    """

    steps: int = 3
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    plain: bool = True
    ignore_end: bool = False
    topk: int = 1
    num_draft_tokens: int | None = None

    def __post_init__(self) -> None:
        wrong = {
            "--steps": self.steps < 1,
            "--max-new-tokens": self.max_new_tokens < 1,
            "--temperature": not 0 <= self.temperature < float("inf"),
        }
        for option, is_wrong in wrong.items():
            if is_wrong:
                value = getattr(self, option.strip("-").replace("-", "_"))
                mend = "give a finite number from 0 on" if isinstance(value, float) else "give a whole number from 1 on"
                raise UsageError(f"a value of {value}", option, mend)
        if not self.shape.is_chain and self.temperature:
            what = f"a tree of top-k {self.topk} at temperature {self.temperature:g}, where only chains are verified"
            raise UsageError(what, "--topk, --temperature", "leave one of them out")

    @property
    def shape(self) -> Shape:
        """Of a round."""
        return shape_of(self.steps, self.topk, self.num_draft_tokens)
