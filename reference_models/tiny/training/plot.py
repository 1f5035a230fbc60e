"""Lines and bars as SVG: two plots that need no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP = 640, 300, 60, 30
_COLOURS = ("#1b6ca8", "#c1440e", "#2e7d32", "#6a4c93", "#8a6d00", "#555555")
_TEXT = 'font-family="sans-serif" font-size="12"'


def lines(
    title: str,
    places: tuple[str, Sequence[int]],
    series: dict[str, Sequence[float]],
    marked: Sequence[int] = (),
    top: float | None = None,
) -> str:
    """One line for each of `series` over named `places`; a ring at the point of each that `marked` counts to. The axis
    ends at `top`, or a little above the largest value."""
    top = max(max(values) for values in series.values()) * 1.05 if top is None else top
    count = len(places[1])
    parts = [_axis(title, places, top)]
    for place, (name, values) in enumerate(series.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [_point(at, value, top, count) for at, value in enumerate(values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - 130}" y="{TOP + 16 * place}" fill="{colour}" {_TEXT}>{escape(name)}</text>')
        if place < len(marked):
            x, y = points[marked[place]]
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="{colour}" stroke-width="2"/>')
    return _svg(TOP + HEIGHT + 40, parts)


def bars(title: str, rows: Sequence[tuple[str, float, float, float]], least: float | None = None) -> str:
    """A bar for each row (name, value, low, high) with its interval as a line; on a logarithmic scale from `least` if
    that is given, what is below having no length."""

    def scaled(value: float) -> float:
        return value if least is None else math.log(max(value, least) / least)

    top = max(scaled(high) for _, _, _, high in rows)
    bottom = min(0.0, *(scaled(low) for _, _, low, _ in rows))

    def x(value: float) -> float:
        return 230 + (scaled(value) - bottom) * (WIDTH - 290) / (top - bottom)

    parts = [f'<text x="10" y="18" {_TEXT} font-weight="bold">{escape(title)}</text>']
    for place, (name, value, low, high) in enumerate(rows):
        y = TOP + 20 * place
        first, second = sorted((x(0.0), x(value)))
        parts.append(f'<text x="222" y="{y + 12}" text-anchor="end" {_TEXT}>{escape(name)}</text>')
        parts.append(
            f'<rect x="{first:.1f}" y="{y + 2}" width="{second - first:.1f}" height="12" fill="{_COLOURS[0]}"/>'
        )
        parts.append(f'<path d="M{x(low):.1f} {y + 8}H{x(high):.1f}" stroke="black"/>')
        parts.append(f'<text x="{WIDTH - 52}" y="{y + 12}" {_TEXT}>{value:+.2f}</text>')
    return _svg(TOP + 20 * len(rows) + 10, parts)


def _point(at: int, value: float, top: float, count: int) -> tuple[float, float]:
    return LEFT + at * (WIDTH - LEFT - 150) / max(1, count - 1), TOP + HEIGHT * (1 - value / top)


def _axis(title: str, places: tuple[str, Sequence[int]], top: float) -> str:
    below, shown = places
    floor, right = TOP + HEIGHT, WIDTH - 150
    parts = [
        f'<text x="10" y="18" {_TEXT} font-weight="bold">{escape(title)}</text>',
        f'<path d="M{LEFT} {TOP}V{floor}H{right}" fill="none" stroke="black"/>',
        f'<text x="{(LEFT + right) / 2}" y="{floor + 32}" {_TEXT} text-anchor="middle">{escape(below)}</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = floor - HEIGHT * share
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end" {_TEXT}>{top * share:.2f}</text>')
    for at in range(0, len(shown), -(-len(shown) // 13)):
        x, _ = _point(at, 0.0, top, len(shown))
        parts.append(f'<text x="{x:.1f}" y="{floor + 15}" text-anchor="middle" {_TEXT}>{shown[at]}</text>')
    return "\n".join(parts)


def _svg(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>", ""])
