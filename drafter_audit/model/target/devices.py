"""Which device a name means, and whether it is here."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from drafter_audit.errors import AuditError, UsageError

PLANS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Maps that accelerate makes itself."""


def check_device(name: object, where: str, error: type[AuditError]) -> None:
    """Raises `error` unless `name` is a device that holds numbers here: "meta" holds none."""
    try:
        there = name is not None and torch.empty(0, device=name).device.type != "meta"  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError):  # torch without CUDA asserts
        there = False
    if not there:
        here = f"cuda:0 to cuda:{torch.cuda.device_count() - 1}" if torch.cuda.is_available() else "no GPU"
        raise error(f"no device {str(name)!r}", where, f"here are cpu, and {here}")


def check_map(device_map: object, offload_folder: str | None) -> None:
    """Raises UsageError for a map with a device that is not here, or with a disk that has no folder."""
    if device_map is None or (isinstance(device_map, str) and device_map in PLANS):
        return
    devices = set(device_map.values()) if isinstance(device_map, Mapping) else {device_map}
    for device in sorted(devices - {"disk"}, key=str):
        check_device(device, "--device-map", UsageError)
    if "disk" in devices and offload_folder is None:
        raise UsageError("the device map leaves modules on disk", "--device-map", "name a folder: --offload-folder")
