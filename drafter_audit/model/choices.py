"""What a drafter would draft from each position of a recorded text, in chains and in trees: the ids alone, never all
logits at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.errors import InputsError
from drafter_audit.model.beams import Beams
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.inputs import Ids, beam_count, states_of, step_count, token_ids
from drafter_audit.model.layers import Linear
from drafter_audit.model.memory import Unrolled
from drafter_audit.model.trees import Candidates, grown

_ROWS = 256
"""Positions whose logits are held at a time."""

_BEAMS = 1024
"""Beams that are run at a time."""


@dataclass(frozen=True)
class Choices:
    """`ids` int64 [steps, n]: the target ids drafted. `gaps` float32 [steps, n]: how far the likeliest logit stood
    above the second, infinite where there is no second."""

    ids: Tensor
    gaps: Tensor


@torch.no_grad()
def choices(drafter: Drafter, input_ids: Ids, states: Tensor, steps: int, start: int = 0) -> Choices:
    """The likeliest draft of `steps` steps from every position from `start` on, n = T - start of them.

    As `Drafter.unroll`, but that `input_ids` int [T or more] may go on past the states [n_slots, T, target_hidden]:
    step k pairs position t with input_ids[t + k]. Steps after the first are computed from `start` on alone. On the
    CPU. Raises InputsError, CannotRunError.
    """
    network, wiring, length = drafter.network, drafter.wiring, states.shape[1]
    ids, seen, steps = _checked(drafter, input_ids, states, steps, start)
    if start == length:
        return Choices(torch.zeros((steps, 0), dtype=torch.int64), torch.zeros((steps, 0)))
    memory, hidden = Unrolled(), network.fuse(seen)
    places, rows, found = torch.arange(length, device=ids.device), slice(start, None), []
    for step in range(steps):
        read, hidden = network.step(
            _shifted(ids, places, step + wiring.token_shift - 1),
            hidden,
            places + step + wiring.position_offset,
            memory.of,
        )
        read, hidden, places, rows = read[rows], hidden[rows], places[rows], slice(None)
        found.append(_likeliest(network.head, read))
    chosen, gaps = (torch.stack(each) for each in zip(*found, strict=True))
    return Choices(drafter.target_ids(chosen).cpu(), gaps.cpu())


@torch.no_grad()
def branches(drafter: Drafter, input_ids: Ids, states: Tensor, steps: int, topk: int, start: int = 0) -> Candidates:
    """What `steps` steps of trees draft from every position from `start` on, T - start of them, given as to
    `choices`. Only tokens paired with states are read: a tree knows nothing of what came after. On the CPU. Raises
    InputsError, CannotRunError."""
    network, wiring, length = drafter.network, drafter.wiring, states.shape[1]
    drafter.start()  # refuses a wiring that reads tokens which are not there yet
    ids, seen, steps = _checked(drafter, input_ids, states, steps, start)
    topk = beam_count(topk, len(network.head.weight), drafter.spec.name)
    if start == length:
        return Candidates.none(steps, topk)
    memory, places, parts = Unrolled(), torch.arange(length, device=ids.device), []
    paired = _shifted(ids, places, wiring.token_shift - 1)
    read, hidden = network.step(paired, network.fuse(seen), places + wiring.position_offset, memory.of)
    for at in range(start, length, max(1, _BEAMS // topk)):
        rows = slice(at, min(at + max(1, _BEAMS // topk), length))
        further, branch = places[rows] + 1 + wiring.position_offset, memory.until(rows.stop, topk).branch
        beams = Beams(drafter.drafting, ids[rows], hidden[rows], further, branch)
        parts.append(grown(drafter.drafting.likeliest(read[rows], topk), beams, steps))
    return Candidates.joined(parts)


def _checked(drafter: Drafter, input_ids: Ids, states: Tensor, steps: int, start: int) -> tuple[Tensor, Tensor, int]:
    """Tokens, states and steps as the network takes them."""
    name, embedding, (slots, width) = drafter.spec.name, drafter.network.embedding, drafter.states_shape
    ids = token_ids(input_ids, len(embedding), embedding.device, name)
    length, steps = states.shape[1], step_count(steps, name)
    seen = states_of(states, (slots, length, width), embedding, name)
    if not 0 <= start <= length <= len(ids):
        what = f"{len(ids)} tokens beside {length} states, from position {start} on"
        raise InputsError(what, name, "pass a token for each state, and a position within them")
    if start < length:
        drafter.check_window(length + steps - 1)
    return ids, seen, steps


def _likeliest(head: Linear, read: Tensor) -> tuple[Tensor, Tensor]:
    """The draft id of the largest logit at each row [n], the first of equal ones, and its gap to the second."""
    ids, gaps = [], []
    for start in range(0, len(read), _ROWS):
        logits = head(read[start : start + _ROWS]).float()
        best, chosen = logits.max(dim=-1, keepdim=True)
        ids.append(chosen[:, 0])
        gaps.append(best[:, 0] - logits.scatter_(-1, chosen, float("-inf")).amax(dim=-1))
    return torch.cat(ids), torch.cat(gaps)


def _shifted(ids: Tensor, places: Tensor, by: int) -> Tensor:
    """ids[t + by] for each t of `places`, zero where there is none."""
    wanted = places + by
    inside = (wanted >= 0) & (wanted < len(ids))
    return torch.where(inside, ids[wanted.clamp(0, len(ids) - 1)], 0)
