"""Pickle opcodes followed without the unpickler: a closed list of them, on a stack of plain data.

`pickletools.genops` reads an opcode and its argument and does nothing with it. What an opcode means is defined in
CPython's pickletools.py; those that torch.save writes, by pickle protocol 2 to 5, are followed here, all others are
refused by name. Nothing recurses, so that no nesting exhausts the interpreter.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable

from drafter_audit.checkpoint.torch_objects import Refused, call, find_global, set_attributes, storage_of

MAX_OPCODES = 2_000_000
"""About 40 opcodes describe a tensor."""

MAX_MEMO = 1_000_000
MAX_DEPTH = 1000
"""Marks that are open at once."""


def run(data: bytes) -> object:
    """The object that the pickle `data` describes, of plain values and `torch_objects`. Raises Refused."""
    machine = _Machine()
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if count >= MAX_OPCODES:
                raise Refused(f"its pickle has more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return machine.result(is_last=position == len(data) - 1)
            machine.step(opcode.name, argument)
    except (ValueError, OverflowError) as error:
        raise Refused(f"its pickle is cut short or damaged ({error})") from error
    raise Refused("its pickle is cut short: it has no end")


class _Machine:
    """The stack, the stacks below each open mark, and the memo."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.below: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def step(self, name: str, argument: object) -> None:
        if name in _LITERALS:
            self.push(argument)
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in _IGNORED:
            named = f" ({argument})" if name in ("INST", "EXT1", "EXT2", "EXT4") else ""
            raise Refused(f"its pickle uses the opcode {name}{named}, which torch.save does not write; it was not run")

    def result(self, *, is_last: bool) -> object:
        if len(self.stack) != 1 or self.below:
            raise Refused("its pickle does not end with one object")
        if not is_last:
            raise Refused("its pickle goes on after its end")
        return self.stack[0]

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> object:
        if not self.stack:
            raise Refused("its pickle takes from an empty stack")
        return self.stack.pop()

    def take(self, count: int) -> tuple[object, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def open_mark(self) -> None:
        if len(self.below) >= MAX_DEPTH:
            raise Refused(f"its pickle is nested deeper than {MAX_DEPTH}")
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[object]:
        if not self.below:
            raise Refused("its pickle closes a mark that is not open")
        taken, self.stack = self.stack, self.below.pop()
        return taken

    def remember(self, key: object) -> None:
        if not self.stack or not isinstance(key, int) or len(self.memo) >= MAX_MEMO:
            raise Refused(f"its pickle remembers nothing, or more than {MAX_MEMO} objects")
        self.memo[key] = self.stack[-1]

    def recall(self, key: object) -> None:
        if not isinstance(key, int) or key not in self.memo:
            raise Refused("its pickle recalls what it did not remember")
        self.push(self.memo[key])

    def set_items(self, items: list[object]) -> None:
        target = self.stack[-1] if self.stack else None
        if not isinstance(target, dict) or len(items) % 2:
            raise Refused("its pickle sets items of something that is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | float | None):  # a hash of these never recurses
                raise Refused(f"its pickle has a dict key of type {type(key).__name__}")
            if key in target:
                raise Refused(f"its pickle sets the key {key!r} twice")
            target[key] = value

    def append(self, items: list[object]) -> None:
        target = self.stack[-1] if self.stack else None
        if not isinstance(target, list):
            raise Refused("its pickle appends to something that is no list")
        target.extend(items)

    def find(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("its pickle asks for a global by something that is no name")
        self.push(find_global(module, name))

    def reduce(self) -> None:
        function, args = self.take(2)
        self.push(call(function, args))

    def build(self) -> None:
        state = self.pop()
        set_attributes(self.stack[-1] if self.stack else None, state)


_LITERALS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
)
_IGNORED = frozenset({"PROTO", "FRAME"})
_STEPS: dict[str, Callable[[_Machine, object], None]] = {
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.open_mark(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.take(3)),
    "SETITEM": lambda machine, _: machine.set_items(list(machine.take(2))),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "APPEND": lambda machine, _: machine.append(list(machine.take(1))),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "BINPUT": lambda machine, key: machine.remember(key),
    "LONG_BINPUT": lambda machine, key: machine.remember(key),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    "BINGET": lambda machine, key: machine.recall(key),
    "LONG_BINGET": lambda machine, key: machine.recall(key),
    "GLOBAL": lambda machine, named: machine.find(*str(named).split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.find(*machine.take(2)),
    "BINPERSID": lambda machine, _: machine.push(storage_of(machine.pop())),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}
