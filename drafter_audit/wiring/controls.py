"""Whether the check itself can be trusted, and what the target's states are worth to a drafter."""

from __future__ import annotations

from dataclasses import replace

import torch

from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import CannotRunError
from drafter_audit.model.drafter import Drafter
from drafter_audit.wiring.paired import mean_of
from drafter_audit.wiring.probe import Probe
from drafter_audit.wiring.result import CHANCE, Control, TapsWorth
from drafter_audit.wiring.score import Score


def control(probe: Probe) -> Control:
    """The declared drafter with its head's rows permuted, and with draft ids taken for target ids. Raises
    CannotRunError where either accepts more than chance."""
    drafter = probe.under(probe.declared)
    permuted = _accept_len(probe, _permuted(drafter))
    unmapped = _accept_len(probe, replace(drafter, d2t=None)) if _maps_every_id(drafter) else None
    for name, found in (("permuted head rows", permuted), ("no vocabulary map", unmapped)):
        if found is not None and found > CHANCE:
            what = f"a control with {name} has accept_len {found:.3f}, above {CHANCE}: the check is broken"
            raise CannotRunError(what, probe.spec.name, "record more prompts, of answers that do not repeat one token")
    return Control(permuted, unmapped)


def taps_worth(probe: Probe, wiring: Wiring, score: Score) -> TapsWorth:
    """`wiring`, whose score that is, each position given the fused states of another, of any prompt beside it."""
    shuffled = probe.score(probe.under(wiring), shuffled=True)
    kl = probe.compared(score.kl[0], shuffled.kl[0])
    accepted = probe.compared(shuffled.accepted, score.accepted)
    assert accepted is not None  # both saw the same starts
    return TapsWorth(
        kl=None if kl is None else kl.difference,
        accept_len=accepted.difference,
        kl_without=mean_of(shuffled.kl[0]),
        accept_len_without=1 + accepted.base,
        kl_interval=None if kl is None else kl.interval(),
        accept_len_interval=accepted.interval(),
    )


def _permuted(drafter: Drafter) -> Drafter:
    head = drafter.network.head
    order = torch.randperm(len(head.weight), generator=torch.Generator().manual_seed(0)).to(head.weight.device)
    bias = None if head.bias is None else head.bias[order]
    return replace(drafter, network=replace(drafter.network, head=replace(head, weight=head.weight[order], bias=bias)))


def _maps_every_id(drafter: Drafter) -> bool:
    """Whether the vocabulary is reduced and no draft id is the target's own: of low ids that are, a drafter keeps its
    right drafts without the map."""
    ids = torch.arange(len(drafter.network.head.weight))
    return drafter.d2t is not None and bool((drafter.target_ids(ids).cpu() != ids).all())


def _accept_len(probe: Probe, drafter: Drafter) -> float:
    return 1 + float(probe.score(drafter).accepted.mean())
