"""What the process that measures tells the one that waits for it: one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from drafter_audit.check.measurement import Measurement
from drafter_audit.check.row import Row
from drafter_audit.check.run import Told


def teller(descriptor: int) -> Callable[[Told], None]:
    """Writes each message to `descriptor`, at once and whole."""

    def tell(told: Told) -> None:
        data = (json.dumps(_message(told)) + "\n").encode()
        while data:
            data = data[os.write(descriptor, data) :]

    return tell


def heard(line: bytes) -> Told:
    """The message that such a line is."""
    told: dict[str, Any] = json.loads(line)
    return Row.from_dict(told["row"]) if "row" in told else (told["drafter"], Measurement.from_dict(told["measured"]))


def _message(told: Told) -> dict[str, Any]:
    if isinstance(told, Row):
        return {"row": told.to_dict()}
    drafter, measured = told
    return {"drafter": drafter, "measured": measured.to_dict()}
