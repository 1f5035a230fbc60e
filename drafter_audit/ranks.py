"""Which of the processes that torchrun started this one is, as the environment says it; without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Rank:
    """This process among those that run one command: `rank` of `size`, `local` on its node."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @classmethod
    def here(cls) -> Self:
        """As torchrun says; alone under anything else, whose variables may be of the same names."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        return cls(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))

    @property
    def first(self) -> bool:
        """Whether this is the rank that alone writes results."""
        return self.rank == 0

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"
