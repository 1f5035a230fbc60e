"""A server's Prometheus counters: sums over engines and ranks, and what a run added to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drafter_audit.bench.http import Server
from drafter_audit.errors import ServerError

METRICS = "/metrics"

Samples = Mapping[tuple[str, str | None], float]
"""Values by sample name and `position` label, summed over all other labels."""


def scrape(server: Server) -> Samples | None:
    """None where the server shows no metrics. Raises ServerError for a page that is none of metrics."""
    text = server.text(METRICS)
    return None if text is None else parse(text, f"{server.url}{METRICS}")


def parse(text: str, where: str = METRICS) -> Samples:
    """The counters of a page in Prometheus' text format; `_created` stamps and NaN are no counts.

    >>> page = '# TYPE a counter\\na_total{engine="0"} 2.0\\na_total{engine="1"} 3.0\\n'
    >>> dict(parse(page))
    {('a_total', None): 5.0}
    """
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[tuple[str, str | None], float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.value == sample.value and not sample.name.endswith("_created"):
                    found[sample.name, sample.labels.get("position")] += sample.value
    except ValueError as error:
        raise ServerError(f"no page of metrics: {error}", where, "name the server of an engine") from error
    return found


def counter(samples: Samples, name: str) -> int | None:
    """The counter `name`, with or without the `_total` that the text format adds; None where it is not there."""
    for spelled in (f"{name}_total", name):
        if (spelled, None) in samples:
            return round(samples[spelled, None])
    return None


def by_position(samples: Samples, name: str) -> tuple[int, ...] | None:
    """The counter's values by `position`, 0 onwards; None where it is not there."""
    placed = {
        int(position): round(value)
        for (spelled, position), value in samples.items()
        if position is not None and spelled in (name, f"{name}_total")
    }
    return tuple(placed[place] for place in sorted(placed)) if placed else None


@dataclass(frozen=True)
class Counters:
    """What a server counted since it started: emitted tokens, rounds, and where told drafted and accepted tokens,
    the latter by position too."""

    tokens: int
    rounds: int
    drafted: int | None = None
    accepted: int | None = None
    per_position: tuple[int, ...] | None = None

    def since(self, before: Counters, where: str) -> Counters:
        """What was added. Raises ServerError where any went backwards: the server was started anew meanwhile."""
        fell = [name for name, now, then in _pairs(self, before) if now is not None and then is not None and now < then]
        if fell:
            what = f"a counter went backwards ({', '.join(fell)}): the server was started anew while it was measured"
            raise ServerError(what, where, "run it again, on a server that stays up")
        return Counters(
            self.tokens - before.tokens,
            self.rounds - before.rounds,
            _less(self.drafted, before.drafted),
            _less(self.accepted, before.accepted),
            _less_each(self.per_position, before.per_position),
        )


def _pairs(now: Counters, then: Counters) -> list[tuple[str, int | None, int | None]]:
    names = ("tokens", "rounds", "drafted", "accepted")
    pairs: list[tuple[str, int | None, int | None]] = [(n, getattr(now, n), getattr(then, n)) for n in names]
    places = zip(now.per_position or (), then.per_position or (), strict=False)
    return pairs + [(f"position {place}", one, other) for place, (one, other) in enumerate(places)]


def _less(now: int | None, then: int | None) -> int | None:
    return None if now is None or then is None else now - then


def _less_each(now: Sequence[int] | None, then: Sequence[int] | None) -> tuple[int, ...] | None:
    if now is None or then is None or len(now) != len(then):
        return None
    return tuple(a - b for a, b in zip(now, then, strict=True))
