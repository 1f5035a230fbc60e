"""Faults planted in each dialect's checkpoints are found, named, and mended by the edit that the command prints.

A checkpoint is the reference drafter as a trainer saves it (exporters.py), with faults planted in it (planted.py). What
it was trained with is known. A row of FAULTS says what is to be found: the knob, what the config then declares, what is
true, and where it can be mended. The whole grid is slow; a few of its cells are asked every day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import pytest

from drafter_audit import load_drafter, open_drafter
from drafter_audit.cli.main import main
from drafter_audit.decode.fit import informed
from drafter_audit.decode.replay import replay
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.engines import engine_of, newest_releases
from drafter_audit.engines.base import merged
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.hypotheses import told as filled_in
from tests.exporters import DIALECTS, export
from tests.planted import TARGET, TINY, planted

TRAINED, STEPS = [2, 6, 9], 3
YARN = {"factor": 32.0, "original_max_position_embeddings": 1024.0, "type": "yarn"}

Told = dict[str, Any]
Run = Callable[..., Told]


@dataclass(frozen=True)
class Fault:
    """`mend`: "config", an edit of some engine mends it wholly; "export", none does, and the command says what to
    export; "nothing", it costs nothing, and every engine wires it as it should be."""

    knob: str
    declared: Any
    trained: Any
    mend: Literal["config", "export", "nothing"] = "config"
    verdict: str = "miswired"


FAULTS = {
    "slot 0 +1": Fault("boundaries", [3, 6, 9], TRAINED),
    "fc columns 0 1 swapped": Fault("slot_order", TRAINED, [6, 2, 9]),
    "norm_before_fc": Fault("pre_fc_norm", "whole", "none"),
    "norm_before_residual": Fault("residual", "post_norm", "pre_norm"),
    "norm_output": Fault("feedback", "post_norm", "pre_norm"),
    "normed twice": Fault("hidden_norm", "hidden_norm", "input_layernorm_then_hidden_norm", "export"),
    "attention halves swapped": Fault("concat", "embedding_first", "hidden_first", "export"),
    "theta 1e6": Fault("rope_theta", 1e6, 1e4),
    "yarn": Fault("rope_scaling", YARN, None),
    "absolute d2t": Fault("vocab_map", "offset", "absolute", "export"),
    "embedding at random": Fault("embedding", "own", "target", "export", "damaged"),
    "head at random": Fault("head", "own", "target_rows", "export", "damaged"),
    "no last norm": Fault("final_norm", False, True, "nothing", "healthy"),
}
IN_PAIRS = {
    "ids +1": Fault("boundaries", [4, 8, 11], TRAINED),
    "embedding in slot 0": Fault("boundaries", [0, 6, 9], TRAINED),
    "fc_norm": Fault("pre_fc_norm", "per_state", "none"),
}
PAIRS = [
    ("slot 0 +1", "theta 1e6"),
    ("norm_before_residual", "ids +1"),
    ("norm_output", "yarn"),
    ("norm_before_fc", "embedding in slot 0"),
    ("fc columns 0 1 swapped", "norm_output"),
    ("absolute d2t", "slot 0 +1"),
    ("attention halves swapped", "theta 1e6"),
    ("fc_norm", "norm_before_residual"),
    ("normed twice", "ids +1"),
    ("yarn", "embedding in slot 0"),
    ("absolute d2t", "norm_before_residual"),
    ("norm_output", "ids +1"),
]
EVERY_DAY = {("eagle", "slot 0 +1"), ("speculators", "theta 1e6"), ("modelopt", "normed twice")}


def cells() -> Iterator[Any]:
    """Each fault in each dialect, and each pair in one of them, in turn."""
    alone = [(dialect, (fault,)) for fault in FAULTS for dialect in DIALECTS]
    for dialect, faults in (*alone, *zip(cycle(DIALECTS), PAIRS, strict=False)):
        everyday = (dialect, *faults) in EVERY_DAY
        marks = () if everyday else pytest.mark.slow
        yield pytest.param(dialect, faults, marks=marks, id=f"{dialect}: {' and '.join(faults)}")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exported")
    return {name: Path(export(name, TINY, TARGET, TRAINED, folder / name)) for name in DIALECTS}


@pytest.fixture(scope="module")
def asked(tiny_recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The JSON that a command tells of drafters on the recording; its exit code is `code`."""
    file = tmp_path_factory.mktemp("told") / "told.json"
    recorded = ("--recording", str(tiny_recording.folder), "--format", "json", "-o", str(file))

    def run(command: str, *arguments: str) -> Told:
        code = main([command, *arguments, *recorded])
        return json.loads(file.read_text()) | {"code": code}

    return run


@pytest.fixture(scope="module")
def healthy(asked: Run) -> tuple[float, float]:
    low, high = asked("decode", str(TINY))["accept_len_interval"]
    return low, high


@pytest.mark.parametrize(("dialect", "faults"), list(cells()))
def test_a_planted_fault_is_found_named_and_mended(
    asked: Run,
    tiny_recording: Recording,
    exported: dict[str, Path],
    healthy: tuple[float, float],
    tmp_path: Path,
    dialect: str,
    faults: tuple[str, ...],
) -> None:
    expected = [(FAULTS | IN_PAIRS)[fault] for fault in faults]
    drafter = planted(tmp_path, *faults, of=exported[dialect])
    told = asked("wiring", drafter)
    found = [(fault["knob"], fault["from"], fault["to"]) for fault in told["faults"]]
    assert sorted(map(str, found)) == sorted(str((fault.knob, fault.declared, fault.trained)) for fault in expected)
    assert (told["verdict"], told["code"]) == (expected[0].verdict, int(expected[0].verdict != "healthy"))
    edits = [edit for edit in told["fix"] if edit["set"] and not edit["left"]]
    mends = {fault.mend for fault in expected}
    if "export" in mends:
        assert edits == []
        assert any("export" in line for line in told["todo"])
    elif "config" in mends:
        assert_each_mends(asked, tiny_recording, Path(drafter), edits, healthy)
    else:
        assert any("costs nothing here" in line for line in told["warnings"])


def assert_each_mends(
    asked: Run, recording: Recording, drafter: Path, edits: list[Told], healthy: tuple[float, float]
) -> None:
    """The printed edit made in the checkpoint's own config, each engine's by itself: what that engine then does with it
    is as good as the healthy drafter. One that reads no ids needs none mended: of some, what the file declares is too.
    """
    file, (low, high) = drafter / "config.json", healthy
    config, declared = json.loads(file.read_text()), []
    for edit in edits:
        file.write_text(json.dumps(merged(config, edit["set"])))
        assert low <= served(edit["engine"], str(drafter), recording) <= high, edit
        declared.append(asked("decode", str(drafter))["accept_len"])
    assert any(low <= accept_len <= high for accept_len in declared)


def served(engine: str, drafter: str, recording: Recording) -> float:
    """accept_len under the wiring that the engine gives the drafter, by its rules."""
    (release,) = (each for each in newest_releases() if each.label == engine)
    spec = informed(open_drafter(drafter), recording.manifest)
    effective, wiring = engine_of(release).effect(spec, release).wiring, declared_wiring(spec)
    assert effective is not None
    assert wiring is not None
    run = replay(load_drafter(drafter, wiring=filled_in(effective, wiring)), recording, STEPS)
    return Acceptance.pooled(run.counts(), steps=STEPS).accept_len
