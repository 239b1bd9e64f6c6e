"""The growth curves as a small SVG: log n across, log CPU per ranking up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, MARGIN = 640.0, 420.0, 56.0
COLOURS = ("#1b6ca8", "#c8553d", "#588b8b", "#7d5ba6")

Point = tuple[float, float]


def growth_svg(growths: Mapping[str, Any]) -> str:
    """A line per growth, with its exponent in the legend."""
    points = {name: [(float(n), float(ms)) for n, ms in found["points"]] for name, found in growths.items()}
    scale = _Scale([point for line in points.values() for point in line])
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{HEIGHT:g}" font-family="sans-serif">']
    parts += [f'<rect width="{WIDTH:g}" height="{HEIGHT:g}" fill="white"/>', *scale.axes()]
    for number, (name, line) in enumerate(points.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(scale.place, line))
        exponent = growths[name]["exponent"]
        label = f"{name}, exponent {exponent:.2f}" if exponent is not None else name
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(MARGIN + 12.0, MARGIN + 18.0 * number, label, colour))
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """From figures to places, both axes logarithmic."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._left, self._right = _decades([n for n, _ in points])
        self._low, self._high = _decades([ms for _, ms in points])

    def place(self, point: Point) -> Point:
        across = (math.log10(point[0]) - self._left) / (self._right - self._left)
        up = (math.log10(point[1]) - self._low) / (self._high - self._low)
        return MARGIN + across * (WIDTH - 2.0 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2.0 * MARGIN)

    def axes(self) -> list[str]:
        lines = []
        for power in range(self._left, self._right + 1):
            x, y = self.place((10.0**power, 10.0**self._low))
            lines += [_line(x, y, x, MARGIN), _text(x, y + 18.0, f"{10**power:,}", "#555")]
        for power in range(self._low, self._high + 1):
            x, y = self.place((10.0**self._left, 10.0**power))
            lines += [_line(x, y, WIDTH - MARGIN, y), _text(6.0, y, f"{10.0**power:g} ms", "#555")]
        return lines


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="{colour}">{text}</text>'
