"""Whether a target's states are what its own logits come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drafter_audit.errors import CannotRunError

if TYPE_CHECKING:
    from drafter_audit.model.target.model import TargetModel

_TOKENS = 8

_ROUNDINGS = 6
"""Units of the dtype's last place, of the largest logit. Norm, gain and head round by half a unit each: the model's
logits and ours lie within 1.5 units of the exact ones, so that two of ours are in the right order, or 3 units apart at
most, and theirs fall by 3 more."""

_LEAST = 1e-3
"""The least bound, for float32: TF32, and sums over thousands of numbers in another order, stay below it."""


def check(target: TargetModel) -> None:
    """Raises CannotRunError where final norm and head over the tapped boundary L do not give the target's own tokens
    and logits, which says over which boundary they would."""
    boundaries = range(target.num_layers + 1)
    logits, states = target.forward_with_taps(plain_ids(target), boundaries)
    wrong = _difference(logits, target.scores_from(states[-1]))
    if wrong is None:
        return
    fitting = [str(b) for b in boundaries[:-1] if _difference(logits, target.scores_from(states[b])) is None]
    would = f"boundary {', '.join(fitting)} would" if fitting else "no boundary would"
    what = f"norm and head over boundary {target.num_layers} do not give the target's own {wrong}, {would}"
    raise CannotRunError(what, f"{target.ref}: {target.parts.path}", "its states are not to be trusted: report it")


def _difference(theirs: Tensor, ours: Tensor) -> str | None:
    """What differs of the target's logits [T, vocab] and ours: "tokens", "logits" or None.

    Families cap or scale their logits behind the head, by one function that grows (Gemma-2, Granite, Cohere): in the
    order of ours, theirs must not fall. A norm that is passed by leaves another factor at each position, which breaks
    that order. Tokens that a family rules out, at the least number, are left aside.
    """
    if not torch.equal(theirs.argmax(-1), ours.argmax(-1)):
        return "tokens"
    kept = theirs > torch.finfo(theirs.dtype).min
    bound = max(_LEAST, _ROUNDINGS * torch.finfo(theirs.dtype).eps) * float(theirs[kept].abs().max())
    ordered = theirs[kept][ours[kept].argsort(stable=True)].float()
    return "logits" if float((ordered.cummax(0).values - ordered).max()) > bound else None


def plain_ids(target: TargetModel) -> Tensor:
    """A few different tokens, none that the config names: an image's placeholder is no text."""
    named = target.model.config.to_dict()
    ids = [value for key, value in named.items() if key.endswith(("token_id", "token_index"))]
    special = {i for value in ids for i in (value if isinstance(value, list) else [value])}
    plain = (i for i in range(3, target.vocab_size) if i not in special)
    return torch.tensor([i for i, _ in zip(plain, range(_TOKENS), strict=False)])
