"""What rows of a drafter's embedding and head prove, set against the target's, and what that makes of their roles.

The rows are read and compared in `prove.py`; numpy is not needed to hold or to show the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from drafter_audit.drafter.roles import Role, TensorRole

if TYPE_CHECKING:
    from drafter_audit.measure.closeness import Closeness

NOT_COMPARABLE = "not_comparable"
_COPIES = {
    "bitwise_equal": "bitwise equal",
    "equal_after_cast": "equal after a cast",
    "scaled": "equal but for a factor",
}


@dataclass(frozen=True)
class TargetTable:
    """What the target's headers say of a table that a drafter copies or borrows.

    `part` is the drafter's canonical name for it, `name` the target's own; `rows` and `width` are its shape as stored,
    both None where it is packed. A tied target gives its embedding as its head.
    """

    part: str
    name: str
    dtype: str
    rows: int | None
    width: int | None


@dataclass(frozen=True)
class Evidence:
    """One tensor of a drafter against the target's. `tensor` and `target_tensor` are names as stored.

    `closeness` is None where the two could not be compared, and `reason` says why. `rows_sampled` is how many rows were
    compared, `bytes_read` what that took of both sides, map and headers included. `differing` are ranges, first and
    last, of the drafter's rows that differ, of those sampled. `rule` is the role that the trainer's rule gave.
    `map_leads_outside` says that the vocabulary map names rows that the target does not have.
    """

    tensor: str
    target_tensor: str | None
    closeness: Closeness | None
    rows_sampled: int
    bytes_read: int
    rule: TensorRole
    differing: tuple[tuple[int, int], ...] = ()
    reason: str | None = None
    map_leads_outside: bool = False

    @property
    def kind(self) -> str:
        """The class of closeness, or "not_comparable"."""
        return self.closeness.kind if self.closeness else NOT_COMPARABLE

    @property
    def is_head(self) -> bool:
        return "lm_head" in self.tensor

    @property
    def is_copy(self) -> bool:
        """Whether the sampled rows are the target's, cast or scaled or not."""
        return self.kind in _COPIES

    @property
    def differs_slightly(self) -> bool:
        """Whether it is nearly equal by many small differences, as training makes them, and not but for a few rows."""
        return self.closeness is not None and self.closeness.spread == "all_rows"

    @property
    def is_broken(self) -> bool:
        """Whether a NaN or an infinity stands in the way of any class."""
        return self.closeness is not None and self.closeness.non_finite > 0

    @property
    def words(self) -> str:
        """The class in plain words, with what was compared."""
        if self.closeness is None:
            return f"not comparable: {self.reason}"
        return f"{self._class_in_words(self.closeness)} in {self.rows_sampled} sampled rows"

    def _class_in_words(self, found: Closeness) -> str:
        theirs = f"the target's {self.target_tensor}"
        if found.kind == "unrelated":
            return f"unrelated to {theirs}"
        if self.differs_slightly:
            return f"nearly equal to {theirs}, each row to within 5% of its norm,"
        if found.kind == "nearly_equal":
            return f"nearly equal to {theirs}, but for {len(found.differing)} rows,"
        detail = {"equal_after_cast": found.rounded_to, "scaled": found.scale and f"{found.scale:.6g}"}.get(found.kind)
        return f"{_COPIES[found.kind]}{f' ({detail})' if detail else ''} to {theirs}"

    def to_dict(self) -> dict[str, Any]:
        found = self.closeness
        return {
            "tensor": self.tensor,
            "target_tensor": self.target_tensor,
            "class": self.kind,
            "reason": self.reason,
            "norm_ratio": found.norm_ratio if found else None,
            "max_abs": found.max_abs if found else None,
            "cosine": found.cosine if found else None,
            "scale": found.scale if found else None,
            "rounded_to": found.rounded_to if found else None,
            "spread": found.spread if found else None,
            "rows_sampled": self.rows_sampled,
            "zero_rows": found.zero_rows if found else 0,
            "non_finite": found.non_finite if found else 0,
            "differing_rows": len(found.differing) if found else 0,
            "differing_ranges": [list(ends) for ends in self.differing],
            "bytes_read": self.bytes_read,
            "rule_role": self.rule.role,
            "rule_reason": self.rule.reason,
        }


def weigh(roles: Iterable[TensorRole], evidence: Iterable[Evidence]) -> tuple[TensorRole, ...]:
    """`roles` with those overridden that evidence speaks of."""
    by_name = {one.tensor: one for one in evidence if one.closeness is not None}
    return tuple(_override(role, by_name[role.name]) if role.name in by_name else role for role in roles)


def _override(tensor: TensorRole, evidence: Evidence) -> TensorRole:
    reason = f"evidence: {evidence.words} (by rule {tensor.role}: {tensor.reason})"
    return replace(tensor, role=_role(tensor.role, evidence), reason=reason)


def _role(rule: Role, evidence: Evidence) -> Role:
    """Copies are frozen, whatever the rule says. Else `frozen` is refuted, and only a head is then called trained.

    An embedding that differs may be trained, random or another model's, and a nearly equal tensor trained or damaged:
    with no rule that says trained they stay unknown. A NaN proves nothing but damage.
    """
    if evidence.is_copy:
        return "frozen"
    if evidence.is_broken:
        return "unknown"
    if evidence.kind == "unrelated" and evidence.is_head:
        return "trainable"
    return "trainable" if rule == "trainable" else "unknown"
