"""Which device a name means, and whether it is here."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from drafter_audit.errors import AuditError, UsageError

PLANS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Maps that accelerate makes itself."""

_MAP = "--device-map"


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
    """Raises UsageError for a map with a device that is not here, a disk without a folder, and a folder for nothing."""
    if device_map is None and offload_folder is not None:
        raise UsageError(
            "it is for what a device map leaves on disk", "--offload-folder", f"add {_MAP}, or leave it out"
        )
    if device_map is None or (isinstance(device_map, str) and device_map in PLANS):
        return
    devices = set(device_map.values()) - {"disk"} if isinstance(device_map, Mapping) else {device_map}
    for device in sorted(devices, key=str):
        check_device(device, _MAP, UsageError)
    if isinstance(device_map, Mapping) and "disk" in device_map.values() and offload_folder is None:
        raise UsageError("the device map leaves modules on disk", _MAP, "name a folder: --offload-folder")


def check_names(device_map: Mapping[str, object], model: nn.Module) -> None:
    """Raises UsageError unless each tensor of `model`, which needs no values, lies in just one module of the map.

    Transformers would take the CPU for those in none, and warn of names that are no module's; accelerate fails at
    modules within one another when all is loaded.
    """
    tensors = list(model.state_dict())
    modules = {name for name, _ in model.named_modules()} | set(tensors)
    unknown = sorted(set(device_map) - modules)
    inner = [name for name in device_map if any(_holds(outer, name) for outer in device_map if outer != name)]
    left = [name for name in tensors if not any(_holds(module, name) for module in device_map)]
    no_place = f"it names no place for {len(left)} of {len(tensors)} tensors"
    for names, what, mend in (
        (unknown, "it names what the target does not have", f"its parts are {', '.join(_parts(model))}"),
        (inner, "it names parts of what it names too", "leave out what holds them, and name all of its parts"),
        (left, no_place, "name a module for each"),
    ):
        if names:
            raise UsageError(f"{what}: {', '.join(names[:3])}", _MAP, mend)


def _parts(model: nn.Module) -> list[str]:
    """Its modules and theirs, by name."""
    inside = {name: [inner for inner, _ in child.named_children()] for name, child in model.named_children()}
    return [f"{name}.{inner}" if inner else name for name, parts in inside.items() for inner in parts or [""]]


def _holds(module: str, name: str) -> bool:
    return module in ("", name) or name.startswith(f"{module}.")
