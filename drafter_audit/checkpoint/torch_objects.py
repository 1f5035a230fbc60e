"""What a state dict is made of, as plain data: the closed list of globals, and what each of them makes here.

A name in a pickle is looked up in these tables and nowhere else. Nothing is imported by it and nothing of torch is
called: a storage is a dtype and a key, a tensor a shape over a storage. Arguments by torch/_utils.py and
torch/_tensor.py, storages by the persistent_id of torch/serialization.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TypeGuard

MAX_DIMS = 64  # torch's own limit
_MOST = 2**63 - 1

DTYPES = MappingProxyType(
    {
        "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
        "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL",
        "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
        "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    }
)  # fmt: skip
"""torch's names of dtypes, and those of safetensors."""

_STORAGES = MappingProxyType(
    {
        "FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16", "BFloat16Storage": "BF16",
        "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
        "BoolStorage": "BOOL", "ComplexFloatStorage": "C64",
    }
)  # fmt: skip


class Refused(Exception):
    """A pickle asks for what no state dict needs, or is none; the message says what, `mend` what to do."""

    def __init__(self, what: str, mend: str = "save a state_dict()") -> None:
        self.mend = mend
        super().__init__(what)


_MALICIOUS = "do not load it, ask its author for safetensors"
_DENSE = "save plain dense tensors, as safetensors"


@dataclass(frozen=True)
class Global:
    """A name of the closed list. It stands for itself: nothing is imported."""

    name: str


@dataclass(frozen=True)
class Storage:
    """The bytes of entry `key`; `numel` counts elements of `dtype`, and bytes where that is None (untyped)."""

    key: str
    dtype: str | None
    numel: int


@dataclass(frozen=True)
class Tensor:
    """Elements of `storage` from element `offset` on; `strides` count elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def reach(self) -> int:
        """One past the last element that it touches, in elements from the storage's start; 0 where it has none."""
        if 0 in self.shape:
            return 0
        return self.offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)) + 1

    @property
    def is_row_major(self) -> bool:
        """Whether its elements lie one after another, the last index running fastest."""
        expected = 1
        for size, stride in reversed(list(zip(self.shape, self.strides, strict=True))):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True


class Ordered(dict[object, object]):
    """A collections.OrderedDict, the one object that may be given attributes."""


def find_global(module: str, name: str) -> Global:
    """The name `module.name`, if it is of the closed list. Raises Refused."""
    full = f"{module}.{name}"
    if full not in _GLOBALS:
        mend = _DENSE if full.startswith("torch.") else _MALICIOUS
        raise Refused(f"its pickle asks for {full}, which no plain state dict needs; it was not called", mend)
    return Global(full)


def call(function: object, args: object) -> object:
    """What the call of a name of the closed list makes. Raises Refused for any other call."""
    make = _CALLS.get(function.name) if isinstance(function, Global) else None
    if make is None:
        raise Refused(f"its pickle calls {_describe(function)}, which no state dict does; it was not called")
    if not isinstance(args, tuple):
        raise Refused("its pickle calls with arguments that are no tuple")
    return make(args)


def storage_of(persistent_id: object) -> Storage:
    """The storage that a persistent id names: ("storage", type, key, location, number of elements)."""
    match persistent_id:
        case tuple(("storage", Global(name), str(key), str(), numel)) if name in _STORAGE_TYPES and _is_size(numel):
            return Storage(key, _STORAGE_TYPES[name], numel)
    raise Refused(f"its pickle names a storage by {_describe(persistent_id)}, which torch.save does not write")


def set_attributes(target: object, state: object) -> None:
    """An OrderedDict may have the `_metadata` of nn.Module.state_dict(), which says nothing of tensors."""
    if not isinstance(target, Ordered) or not isinstance(state, dict) or state.keys() - {"_metadata"}:
        raise Refused(f"its pickle sets the state of {_describe(target)}, which no state dict needs")


def _describe(value: object) -> str:
    return value.name if isinstance(value, Global) else f"a value of type {type(value).__name__}"


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MOST


def _are_sizes(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and len(value) <= MAX_DIMS and all(_is_size(item) for item in value)


def _tensor(args: Sequence[object], dtype: object) -> Tensor:
    """From (storage, offset, size, stride, ...) and a dtype, where the storage has none."""
    storage, offset, shape, strides = args[:4]
    if not isinstance(storage, Storage) or not _is_size(offset) or not _are_sizes(shape) or not _are_sizes(strides):
        raise Refused("its pickle describes a tensor by something else than a storage, an offset, sizes and strides")
    if len(shape) != len(strides) or prod(shape) > _MOST:
        raise Refused(f"its pickle describes a tensor of {list(shape)[:8]} by the strides {list(strides)[:8]}")
    if not isinstance(dtype, str):
        raise Refused("its pickle describes a tensor over an untyped storage without a dtype")
    return Tensor(storage, dtype, offset, shape, strides)


def _tensor_v2(args: tuple[object, ...]) -> Tensor:
    _expect(args, 6, 7, "_rebuild_tensor_v2")
    return _tensor(args, args[0].dtype if isinstance(args[0], Storage) else None)


def _tensor_v3(args: tuple[object, ...]) -> Tensor:
    _expect(args, 7, 8, "_rebuild_tensor_v3")
    dtype = _DTYPE_GLOBALS.get(args[6].name) if isinstance(args[6], Global) else None
    return _tensor(args, dtype)


def _parameter(args: tuple[object, ...]) -> Tensor:
    _expect(args, 3, 4, "_rebuild_parameter")
    if not isinstance(args[0], Tensor):
        raise Refused(f"its pickle makes a parameter of {_describe(args[0])}")
    return args[0]


def _from_type(args: tuple[object, ...]) -> object:
    """A tensor that carries attributes: (function, type, arguments, attributes)."""
    _expect(args, 4, 4, "_rebuild_from_type_v2")
    function, kind, inner, _ = args
    names = [value.name if isinstance(value, Global) else "" for value in (kind, function)]
    if names[0] not in _TENSOR_TYPES or names[1] not in _BUILDERS:
        raise Refused(f"its pickle rebuilds {_describe(kind)} by {_describe(function)}")
    return call(function, inner)


def _ordered(args: tuple[object, ...]) -> Ordered:
    _expect(args, 0, 0, "OrderedDict")
    return Ordered()


def _size(args: tuple[object, ...]) -> tuple[int, ...]:
    _expect(args, 1, 1, "torch.Size")
    if not _are_sizes(args[0]):
        raise Refused("its pickle makes a torch.Size of something else than sizes")
    return args[0]


def _device(args: tuple[object, ...]) -> Global:
    return Global("torch.device")  # where a tensor was: nothing that is counted


def _expect(args: Sequence[object], least: int, most: int, name: str) -> None:
    if not least <= len(args) <= most:
        raise Refused(f"its pickle calls {name} with {len(args)} arguments")


_STORAGE_TYPES: dict[str, str | None] = {f"torch.{name}": dtype for name, dtype in _STORAGES.items()} | {
    "torch.storage.UntypedStorage": None,
    "torch.UntypedStorage": None,
}
_DTYPE_GLOBALS = {f"torch.{name}": dtype for name, dtype in DTYPES.items()}
_TENSOR_TYPES = {"torch.Tensor", "torch.nn.parameter.Parameter"}
_BUILDERS = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}
_CALLS: dict[str, Callable[[tuple[object, ...]], object]] = {
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "collections.OrderedDict": _ordered,
    "torch.Size": _size,
    "torch.device": _device,
}
_GLOBALS = frozenset({*_CALLS, *_STORAGE_TYPES, *_DTYPE_GLOBALS, *_TENSOR_TYPES})
