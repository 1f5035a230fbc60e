"""The tables and plots of docs/wiring.md, "How sure", from the figures of wiring_rates.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import comb
from typing import Any

from tabulate import tabulate

from reference_models.tiny.training.plot import lines

Found = Mapping[str, Any]
HEALTHY = "none"
RULES = {"kl": "KL", "accept_len": "accept_len"}


def at_most(events: int, draws: int, level: float = 0.95) -> float:
    """The upper end of the exact interval of Clopper and Pearson (1934) for a rate: the rate at which so few events
    have half of what `level` leaves.

    >>> round(at_most(0, 20), 4)  # 1 - 0.025 ** (1 / 20)
    0.1684
    """
    if events == draws:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        rate = (low + high) / 2
        so_few = sum(comb(draws, k) * rate**k * (1 - rate) ** (draws - k) for k in range(events + 1))
        low, high = (rate, high) if so_few > (1 - level) / 2 else (low, rate)
    return high


def tables(found: Found) -> str:
    """All of them, an empty line between."""
    return "\n\n".join([rate_table(found), alarm_line(found), miss_table(found)])


def rate_table(found: Found) -> str:
    """A row for each fault, and for none; a column for each number of positions, with the percentages of both rules."""
    rates, sizes = found["rates"], found["plan"]["positions"]
    rows = [["prompts, at most", *(str(_one(rates, HEALTHY, size)["prompts"]) for size in sizes)]]
    for fault in dict.fromkeys(each["fault"] for each in rates):
        rows.append([fault, *(_pair(_one(rates, fault, size)) for size in sizes)])
    return _table(["planted", *(f"{size:,}" for size in sizes)], rows)


def alarm_line(found: Found) -> str:
    """False alarms of the whole check, with the bound."""
    alarms = found["alarms"]
    bound = at_most(alarms["alarms"], alarms["draws"])
    return f"{alarms['alarms']} of {alarms['draws']}, at most {bound:.1%}"


def miss_table(found: Found) -> str:
    """A row for each difference and kind of interval, a column for each number of prompts."""
    names = dict.fromkeys(each["of"] for each in found["misses"])
    sizes = list(dict.fromkeys(each["prompts"] for each in found["misses"]))
    rows = []
    for name in names:
        own = [each for each in found["misses"] if each["of"] == name]
        for kind in ("plain", "ours"):
            rows.append([name, kind, *(_share(each[kind], each["draws"]) for each in own)])
    return _table(["difference", "interval", *map(str, sizes)], rows)


def plots(found: Found) -> dict[str, str]:
    """File name -> SVG: the rates of each rule."""
    rates, sizes = found["rates"], found["plan"]["positions"]
    faults = dict.fromkeys(each["fault"] for each in rates)
    made = {}
    for rule, word in RULES.items():
        curves: dict[str, list[float]] = {
            fault: [100 * _one(rates, fault, n)[rule] / _one(rates, fault, n)["draws"] for n in sizes]
            for fault in faults
        }
        title = f"Draws in which {word} blames a knob, %, by planted fault"
        made[f"wiring_rates_{rule}.svg"] = lines(title, ("positions", sizes), dict(curves), top=100.0)
    return made


def _one(rates: Iterable[Mapping[str, Any]], fault: str, positions: int) -> Mapping[str, Any]:
    return next(each for each in rates if (each["fault"], each["positions"]) == (fault, positions))


def _pair(rate: Mapping[str, Any]) -> str:
    return " / ".join(f"{100 * rate[rule] / rate['draws']:.0f}" for rule in RULES)


def _share(count: int, draws: int) -> str:
    return f"{100 * count / draws:.1f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)
