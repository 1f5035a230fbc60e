"""How one wiring does on a recording: KL from what the target thought, and the drafts it would have accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from drafter_audit.model.drafter import Drafter
from drafter_audit.model.layers import Attend
from drafter_audit.model.memory import Unrolled
from drafter_audit.wiring.aims import Aims
from drafter_audit.wiring.corpus import Pack
from drafter_audit.wiring.taps import Taps

Values = npt.NDArray[np.float64]

_ROWS = 256
_WORST = 1e4  # nats, where a wiring gives no finite number: as bad as no other
_SAMPLED_ROWS, _SAMPLED_IDS = 16, 256


@dataclass(frozen=True)
class Score:
    """By start, over a whole corpus; NaN where the wiring was not run, or nothing is known.

    `kl` [steps, n] in nats: of draft k from each start, against what the target thought at that place, the answer's own
    tokens given; NaN past the answer's end. `accepted` [n]: how many drafts were the target's own tokens, up to the
    first that was not. `omitted` [n] bounds the target's probability that is left out. `sample` are the log-probs that
    the drafter gave at a few starts, each step, and the target ids of those drafts.
    """

    kl: Values
    accepted: Values
    omitted: Values
    sample: list[tuple[Values, Values]] = field(default_factory=list)

    @classmethod
    def empty(cls, steps: int, starts: int) -> Score:
        return cls(np.full((steps, starts), np.nan), np.full(starts, np.nan), np.full(starts, np.nan))


def run(drafter: Drafter, pack: Pack, taps: Taps, score: Score, *, shuffled: bool = False) -> None:
    """Writes the starts of `pack` into `score`, under `drafter.wiring`. `shuffled`: each position is given another
    one's fused states. Leaves them as they are where a boundary of the wiring is not in the pack."""
    wiring, steps = drafter.wiring, len(score.kl)
    if not set(wiring.boundaries or ()) <= set(pack.boundaries):
        return
    drafter.check_window(max(pack.lengths) + steps - 1)
    hidden, memory, rows = (
        taps.fused(drafter.network, wiring.boundaries or (), wiring.last_state),
        _Together(pack),
        None,
    )
    if shuffled:
        hidden = hidden[torch.randperm(len(hidden), generator=torch.Generator().manual_seed(0)).to(hidden.device)]
    places, right = pack.places, torch.ones(len(pack.chosen), dtype=torch.bool, device=hidden.device)
    aims, accepted = taps.aims(drafter), torch.zeros(len(pack.chosen), device=hidden.device)
    for step in range(steps):
        tokens = pack.paired(step + wiring.token_shift, rows)
        read, hidden = drafter.network.step(tokens, hidden, places + step + wiring.position_offset, memory.of)
        if rows is None:
            rows = pack.chosen
            read, hidden, places = read[rows], hidden[rows], places[rows]
        kl, drafts = _judged(drafter, read, aims, pack, step, score)
        score.kl[step, pack.rows] = kl
        right &= drafts == pack.paired(step + 2, rows)
        accepted += right
    score.accepted[pack.rows], score.omitted[pack.rows] = accepted.cpu(), aims.omitted[pack.thoughts].cpu()


def _judged(drafter: Drafter, read: Tensor, aims: Aims, pack: Pack, step: int, score: Score) -> tuple[Values, Tensor]:
    """KL [n] of one step, and the target ids drafted [n]."""
    thoughts, goes_on = pack.thought_after(step)
    kls, drafts = [], []
    for start in range(0, len(read), _ROWS):
        logits = drafter.network.head(read[start : start + _ROWS]).float()
        drafts.append(aims.ids[logits.argmax(dim=-1)])
        said, at = logits.log_softmax(dim=-1), thoughts[start : start + _ROWS]
        if start == 0 and pack.rows.start == 0:
            score.sample.append(_sample(said, aims))
        told = aims.merge(said).gather(-1, aims.columns[at]).double()
        off = (aims.weights[at] * told.clamp(min=-_WORST)).sum(dim=-1)
        kls.append(aims.negative_entropy[at] - off)
    kl = torch.nan_to_num(torch.cat(kls), nan=_WORST, posinf=_WORST).clamp(max=_WORST)
    seen = goes_on & aims.known[thoughts]
    return kl.masked_fill(~seen, float("nan")).cpu().numpy(), torch.cat(drafts)


def _sample(said: Tensor, aims: Aims) -> tuple[Values, Values]:
    """Some starts, the last among them, and some drafts, evenly."""
    rows = torch.linspace(0, len(said) - 1, min(_SAMPLED_ROWS, len(said))).long()
    ids = torch.linspace(0, said.shape[1] - 1, min(_SAMPLED_IDS, said.shape[1])).long()
    taken = said[rows.to(said.device)][:, ids.to(said.device)]
    return taken.double().cpu().numpy(), aims.ids[ids.to(said.device)].double().cpu().numpy()


class _Together:
    """Attention of prompts side by side, each over its own positions, as `Unrolled` has it for one."""

    def __init__(self, pack: Pack) -> None:
        self._pack, self._each = pack, [Unrolled() for _ in pack.lengths]

    def of(self, layer: int) -> Attend:
        each = [memory.of(layer) for memory in self._each]

        def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
            sizes = list(self._pack.lengths if q.shape[1] == sum(self._pack.lengths) else self._pack.starts)
            parts: Sequence[tuple[Tensor, ...]] = [torch.split(x, sizes, dim=1) for x in (q, k, v)]
            return torch.cat([one(*part, scale) for one, *part in zip(each, *parts, strict=True)], dim=1)

        return attend
