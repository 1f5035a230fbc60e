"""States at boundaries while a forward runs: each is handed on as it comes, and held to what a state must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import index
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from drafter_audit.errors import CannotRunError, InputsError

Sink: TypeAlias = Callable[[int, Tensor], None]
"""Takes (slot, state): the index in the list of boundaries, and that state [T, hidden] on the device it came on. The
state is the model's own memory: what keeps it must copy it before it returns."""


class Taps:
    """Hooks on the decoder layers for one forward. `boundaries` are distinct and within 0..len(layers)."""

    def __init__(
        self, layers: Sequence[nn.Module], boundaries: Sequence[int], shape: tuple[int, int], sink: Sink
    ) -> None:
        self._layers, self._boundaries, self._shape, self._sink = layers, boundaries, shape, sink
        self._extremes: dict[int, tuple[Tensor, Tensor]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """The hooks are in place inside, and gone after."""
        hooks = [self._hook(slot, boundary) for slot, boundary in enumerate(self._boundaries)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def check(self, where: str, *, one_token: bool) -> None:
        """Raises CannotRunError where a boundary is missing, or a state is not finite, constant or the same as all.

        `one_token` says that the text is one token, however often: its row of the embedding may be zeros, as that of a
        padding token is.
        """
        missing = [str(b) for b in self._boundaries if b not in self._extremes]
        if missing:
            what = f"no state came at boundary {', '.join(missing)} of {len(self._boundaries)} asked for"
            raise CannotRunError(what, where, "the model leaves that layer out of its forward: ask for others")
        found = {b: (float(low), float(high)) for b, (low, high) in self._extremes.items()}
        for boundary, (low, high) in found.items():
            self._check_values(boundary, low, high, where, may_be_one=one_token and boundary == 0)
        if len(found) > 1 and len(set(found.values())) == 1:
            what = f"the states at all {len(found)} boundaries are the same"
            raise CannotRunError(what, where, "the layers change nothing: check that the weights were loaded")

    def _check_values(self, boundary: int, low: float, high: float, where: str, *, may_be_one: bool) -> None:
        if not (abs(low) < float("inf") and abs(high) < float("inf")):  # false for NaN too
            mend = "load it in another dtype (bfloat16, float32), or check its weights"
            raise CannotRunError(f"the state at boundary {boundary} is not finite", where, mend)
        if low == high and not may_be_one:
            what = f"the state at boundary {boundary} holds the one value {low}"
            raise CannotRunError(what, where, "check that the weights were loaded")

    def _hook(self, slot: int, boundary: int) -> RemovableHandle:
        """Boundary 0 is what the first layer is given, any other what the layer before it gives."""
        if boundary == 0:
            return self._layers[0].register_forward_pre_hook(
                lambda _, args, kwargs: self._take(slot, args[0] if args else kwargs.get("hidden_states")),
                with_kwargs=True,
            )
        return self._layers[boundary - 1].register_forward_hook(
            lambda _, args, output: self._take(slot, output[0] if isinstance(output, tuple) else output)
        )

    def _take(self, slot: int, given: object) -> None:
        boundary = self._boundaries[slot]
        state = given.full_tensor() if hasattr(given, "full_tensor") else given
        if not isinstance(state, Tensor) or state.shape != (1, *self._shape):
            seen = f"of shape {list(state.shape)}" if isinstance(state, Tensor) else f"a {type(state).__name__}"
            what = f"boundary {boundary} is {seen}, not [1, {self._shape[0]}, {self._shape[1]}]"
            raise CannotRunError(what, "its decoder layers", "a target with several residual streams has no one state")
        if boundary in self._extremes:
            what = f"boundary {boundary} came twice in one forward"
            raise CannotRunError(what, "its decoder layers", "a target that runs a layer twice has no one state there")
        self._extremes[boundary] = torch.aminmax(state)
        self._sink(slot, state[0])


def checked_boundaries(boundaries: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Raises InputsError unless they are distinct whole numbers within 0..num_layers."""
    mend = f"give distinct ones within 0..{num_layers}"
    try:
        asked = tuple(index(b) for b in boundaries)  # numpy's and torch's whole numbers too; 1.0 is none
    except TypeError as error:
        raise InputsError(f"boundaries {boundaries!r}", "the states asked for", mend) from error
    if not all(0 <= b <= num_layers for b in asked) or len(set(asked)) < len(asked):
        raise InputsError(f"boundaries {list(asked)}", "the states asked for", mend)
    return asked
