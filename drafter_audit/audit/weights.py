"""What `compare --weights` finds: how the tensors of two checkpoints differ, value by value.

Results only: no weight is read here, and numpy is not imported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "non_finite",
    "bitwise_equal",
    "equal_after_cast",
    "scaled",
    "nearly_equal",
    "permuted",
    "unrelated",
    "other_shape",
    "bytes_differ",
    "not_compared",
]
"""The classes of measure/closeness.py and five more: `non_finite`, which differs and holds a NaN or an infinity,
so that figures speak of its other rows alone; `permuted`, equal but for the order of rows or heads; `other_shape`,
whose values cannot be set side by side; `bytes_differ`, of packed and integer tensors; `not_compared`, of which no
value was read."""

Permutation = Literal["rows", "heads", "rope_interleave"]

SEVERITY: tuple[Kind, ...] = (
    "non_finite",
    "unrelated",
    "other_shape",
    "not_compared",
    "bytes_differ",
    "scaled",
    "permuted",
    "nearly_equal",
    "equal_after_cast",
    "bitwise_equal",
)
"""The order in which tensors are listed: what a reader must see first comes first."""

EQUAL: frozenset[Kind] = frozenset({"bitwise_equal", "equal_after_cast"})


@dataclass(frozen=True)
class Plan:
    """Bytes that a comparison will read at most, and how many of them come from the Hub."""

    total: int
    remote: int


Watch = Callable[[Plan], AbstractContextManager[Callable[[int], None]]]
"""Called with the plan before anything is read; what it yields is called with each number of bytes read."""


@dataclass(frozen=True)
class TensorDifference:
    """One tensor that both sides hold: `name` as theirs stores it, `ours_name` as ours does; pairs are (theirs, ours).

    `norm_ratio` is ‖ours‖ / ‖theirs‖, `max_abs` the largest |ours - theirs|, `cosine` that of the angle between them,
    over the whole tensor, rows with a NaN or an infinity left out; all None where values were not set side by side.
    A vector is one row. `matched_by` says whether rows were matched by their place or by the token that they stand
    for; by token, `rows` are those of the tokens that both sides have. `first_differing` are the first rows of ours
    that differ. `reason` says why a tensor was not compared.
    """

    name: str
    ours_name: str
    kind: Kind
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    norm_ratio: float | None = None
    max_abs: float | None = None
    cosine: float | None = None
    permutation: Permutation | None = None
    rows: int | None = None
    rows_differing: int | None = None
    first_differing: tuple[int, ...] = ()
    matched_by: Literal["place", "token"] = "place"
    scale: float | None = None
    non_finite: int = 0
    reason: str | None = None

    @property
    def partial(self) -> bool:
        """Whether it was matched by token and either side has rows of tokens that the other lacks."""
        most = max(shape[0] if shape else 0 for shape in self.shapes)
        return self.matched_by == "token" and self.rows is not None and self.rows < most

    @property
    def equal(self) -> bool:
        """All of it, not only the rows of the tokens that both sides have."""
        return self.kind in EQUAL and not self.partial

    @property
    def differs(self) -> bool:
        return not self.equal and self.kind != "not_compared"

    @property
    def identical(self) -> bool:
        return self.kind == "bitwise_equal" and not self.partial

    def to_dict(self) -> dict[str, Any]:
        theirs, ours = self.shapes
        return {
            "name": self.name,
            "ours_name": self.ours_name,
            "kind": self.kind,
            "norm_ratio": self.norm_ratio,
            "max_abs": self.max_abs,
            "cosine": self.cosine,
            "shape": list(theirs),
            "ours_shape": list(ours),
            "dtypes": list(self.dtypes),
            "permutation": self.permutation,
            "rows": self.rows,
            "rows_differing": self.rows_differing,
            "first_differing": list(self.first_differing),
            "matched_by": self.matched_by,
            "scale": self.scale,
            "non_finite": self.non_finite,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Vocabulary:
    """How the draft vocabulary changed from theirs to ours, in rows of lm_head.

    `moved` tokens have a row in both, at another place; `added` only in ours, `removed` only in theirs.
    """

    moved: int
    added: int
    removed: int
    same_map: bool

    def to_dict(self) -> dict[str, Any]:
        return {"same_map": self.same_map, "moved": self.moved, "added": self.added, "removed": self.removed}


@dataclass(frozen=True)
class ConfigKey:
    """A key of config.json by its dotted path, and its values (theirs, ours): None where it is null or absent."""

    key: str
    values: tuple[Any, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "values": list(self.values)}


@dataclass(frozen=True)
class WeightsComparison:
    """One earlier checkpoint, `against`, set against the last, `ours`, tensor by tensor.

    `tensors` are all that both hold, the gravest difference first. `notes` say what could not be compared as asked.
    """

    against: str
    ours: str
    tensors: tuple[TensorDifference, ...]
    only_theirs: tuple[str, ...]
    only_ours: tuple[str, ...]
    vocabulary: Vocabulary | None
    config_keys: tuple[ConfigKey, ...]
    notes: tuple[str, ...]
    bytes_read: int

    @property
    def differing(self) -> tuple[TensorDifference, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.differs)

    @property
    def cast(self) -> tuple[TensorDifference, ...]:
        """Those equal after a cast, and not byte for byte."""
        return tuple(tensor for tensor in self.of_kind("equal_after_cast") if tensor.equal)

    def of_kind(self, *kinds: Kind) -> tuple[TensorDifference, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.kind in kinds)

    @property
    def differs(self) -> bool:
        """Whether a weight differs (a value beyond a cast, a tensor on one side only, what rows stand for), or may, for
        it was not compared: what was not read never passes."""
        changed = self.vocabulary is not None and not self.vocabulary.same_map
        unequal = any(not tensor.equal for tensor in self.tensors)
        return bool(unequal or self.only_theirs or self.only_ours or changed)

    def to_dict(self) -> dict[str, Any]:
        """`rows` are the tensors that are not equal byte for byte, all of them; `equal` counts those equal after a cast
        too. `equal`, `differing` and `not_compared` are together all that both sides hold."""
        return {
            "against": self.against,
            "tensors": {
                "equal": sum(tensor.equal for tensor in self.tensors),
                "equal_after_cast": len(self.cast),
                "differing": len(self.differing),
                "not_compared": len(self.of_kind("not_compared")),
                "only_theirs": list(self.only_theirs),
                "only_ours": list(self.only_ours),
            },
            "rows": [tensor.to_dict() for tensor in self.tensors if not tensor.identical],
            "vocabulary": None if self.vocabulary is None else self.vocabulary.to_dict(),
            "config_keys": [key.to_dict() for key in self.config_keys],
            "notes": list(self.notes),
            "bytes_read": self.bytes_read,
        }
