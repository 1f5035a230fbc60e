"""Where the time of a decoding loop goes. Each phase ends when the devices are done, so that none pays for another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import torch

from drafter_audit.model.target.model import TargetModel


@dataclass(frozen=True)
class Spent:
    """Seconds. `verify_s` is the target and its cache's roll-back, `draft_s` the draft steps, `extend_s` the
    drafter over true states, `other_s` all else; `prefill_s` is the prompt in both models, before any round."""

    verify_s: float = 0.0
    draft_s: float = 0.0
    extend_s: float = 0.0
    other_s: float = 0.0
    prefill_s: float = 0.0

    @property
    def decoding_s(self) -> float:
        """All but the prefill."""
        return self.verify_s + self.draft_s + self.extend_s + self.other_s

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class Stopwatch:
    """Adds up the phases of one text. `devices` are waited for at each phase's end."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = [device for device in set(devices) if device.type not in ("cpu", "meta")]
        self._begun = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        for device in self._devices:
            torch.accelerator.synchronize(device)
        self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - begun

    def spent(self) -> Spent:
        """Since the start; what lies in no phase is `other_s`."""
        phases = {f"{name}_s": seconds for name, seconds in self._spent.items()}
        return Spent(other_s=time.perf_counter() - self._begun - sum(phases.values()), **phases)


def devices_of(target: TargetModel) -> tuple[torch.device, ...]:
    """All that hold its weights."""
    return tuple({parameter.device for parameter in target.model.parameters()})
