"""The last stage: measures the pair as it lies on disk, by the library itself, and writes what came out."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from drafter_audit.model.target.load import load_target
from reference_models.tiny.training import measure, plot, text
from reference_models.tiny.training.drafter import BOUNDARIES
from reference_models.tiny.training.recordings import Recording, record, spread

PROMPTS = 64
_TEMPLATE = Path(__file__).with_name("README.template.md")
_FACTS = Path(__file__).with_name("drafter-audit.template.toml")


def write(folder: Path) -> None:
    """log/, README.md and the drafter's drafter-audit.toml."""
    facts = measures(folder)
    _write_log(folder / "log", facts)
    answers, likeness = _columns(folder / "log" / "answers.csv"), _columns(folder / "log" / "target.csv")["likeness"]
    filled = {
        "answers": f"{answers['prompts'][0]:.0f}",
        "right": f"{answers['right'][0] / answers['prompts'][0]:.0%}",
        "likeness": f"{likeness[-1]:.2f}",
        "accept_len": f"{facts['faults'][0]['accept_len']:.2f}",
        "kl": f"{facts['faults'][0]['kl']:.3f}",
        "ended": str(facts["ended"]),
        "prompts": str(facts["prompts"]),
        "tokens": f"{facts['mean_tokens']:.0f}",
        "faults": _fault_rows(facts["faults"]),
        "curves": _curve_rows(facts["curves"]),
        "sizes": _file_rows(folder),
    }
    (folder / "README.md").write_text(Template(_TEMPLATE.read_text("utf-8")).substitute(filled), "utf-8")
    (folder / "drafter" / "drafter-audit.toml").write_text(
        Template(_FACTS.read_text("utf-8")).substitute(filled), "utf-8"
    )


def measures(folder: Path) -> dict[str, Any]:
    """All figures, on PROMPTS held-out prompts."""
    target = load_target(str(folder / "target"))
    recordings = record(target, folder / "target", spread(text.HELD_OUT, PROMPTS))
    return {
        "prompts": len(recordings),
        "ended": sum(each.ended for each in recordings),
        "mean_tokens": sum(each.answer for each in recordings) / len(recordings),
        "categories": _ended_by_category(recordings),
        "faults": measure.table(str(folder / "drafter"), recordings),
        "curves": measure.curves(str(folder / "drafter"), recordings),
    }


def _ended_by_category(recordings: Sequence[Recording]) -> dict[str, list[int]]:
    names = dict.fromkeys(each.category for each in recordings)
    return {name: [each.ended for each in recordings if each.category == name] for name in names}


def _write_log(log: Path, facts: dict[str, Any]) -> None:
    log.mkdir(parents=True, exist_ok=True)
    (log / "measures.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    names = [f"slot {slot}, trained at {boundary}" for slot, boundary in enumerate(BOUNDARIES)]
    curves = dict(zip(names, facts["curves"], strict=True))
    slots = ("boundary that the slot is given", range(len(facts["curves"][0])))
    drawn = plot.lines("KL with one slot moved", slots, curves, BOUNDARIES)
    (log / "slots.svg").write_text(drawn, "utf-8")
    wrong = facts["faults"][1:]
    for key, title in (("kl", "KL added by each fault"), ("accept_len", "accept_len changed by each fault")):
        rows = [(row["name"], *(row[f"{key}_difference"][part] for part in ("value", "low", "high"))) for row in wrong]
        (log / f"faults_{key}.svg").write_text(plot.bars(title, rows), "utf-8")
    for stage, keys in (("target", ("loss", "likeness")), ("drafter", ("kl_0", "kl_1", "kl_2", "kl_3", "kl_4"))):
        logged = _columns(log / f"{stage}.csv")
        places = ("steps", [int(step) for step in logged["step"]])
        drawn = plot.lines(f"Training of the {stage}", places, {key: logged[key] for key in keys})
        (log / f"{stage}.svg").write_text(drawn, "utf-8")


def _columns(path: Path) -> dict[str, list[float]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: [float(row[key]) for row in rows] for key in rows[0]}


def _fault_rows(rows: list[dict[str, Any]]) -> str:
    right = rows[0]
    lines = [f"| as trained | {right['kl']:.3f} | | {right['accept_len']:.2f} | |"]
    for row in rows[1:]:
        kl, accept = _interval(row["kl_difference"], 3), _interval(row["accept_len_difference"], 2)
        lines.append(f"| {row['name']} | {row['kl']:.3f} | {kl} | {row['accept_len']:.2f} | {accept} |")
    return "\n".join(lines)


def _interval(found: dict[str, float], places: int) -> str:
    value, low, high = (f"{found[part]:+.{places}f}" for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _curve_rows(curves: list[list[float]]) -> str:
    lines = []
    for slot, curve in enumerate(curves):
        cells = [f"**{value:.3f}**" if at == BOUNDARIES[slot] else f"{value:.3f}" for at, value in enumerate(curve)]
        lines.append(f"| {slot} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _file_rows(folder: Path) -> str:
    files = sorted(path for part in ("target", "drafter") for path in (folder / part).iterdir())
    shipped = [path for path in files if path.name != "drafter-audit.toml"]
    return "\n".join(
        f"| {path.relative_to(folder).as_posix()} | {path.stat().st_size:,} | `{_sha256(path)}` |" for path in shipped
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
