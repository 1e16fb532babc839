"""Charts as SVG text, for pages that need no other file. Colours are those of the page: ``var(--series-N)``."""

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10
from typing import Final, TypeVar

WIDTH: Final = 720
"""How wide a chart is, in its own units; the page scales it."""
HEIGHT: Final = 240
SERIES: Final = 6
"""How many colours there are."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 28, 28
_BAR, _GAP = 18, 8
_LABEL = 260
_LABEL_CHARACTERS = 38

Points = Sequence[tuple[float, float]]
Value = TypeVar("Value")


def line_chart(title: str, series: Mapping[str, Points], ticks: Mapping[float, str]) -> str:
    """Lines over one axis.

    Args:
        title: what it shows, for those who cannot see it.
        series: the points of each line, ordered by x; nothing below zero.
        ticks: the places on the x axis that have a text.
    """
    places = [x for points in series.values() for x, _ in points]
    highest = _nice(max([y for points in series.values() for _, y in points], default=0.0))
    first, last = min(places, default=0.0), max(places, default=0.0)
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> str:
        share = (x - first) / (last - first) if last > first else 0.5
        return f"{_LEFT + width * share:.1f},{_TOP + height * (1 - y / highest):.1f}"

    parts = [_grid(highest, height)]
    for x, text in ticks.items():
        parts.append(_text(float(at(x, 0).split(",")[0]), HEIGHT - 8, text, "middle"))
    for number, (name, points) in enumerate(series.items()):
        colour = _colour(number)
        drawn = [at(x, y) for x, y in points]
        if len(drawn) > 1:
            line = " ".join(drawn)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for place, (_, y) in zip(drawn, points, strict=True):
            cx, cy = place.split(",")
            tip = f"<title>{escape(name)}: {_short(y)}</title>"
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="2.5" fill="{colour}">{tip}</circle>')
    return _svg(title, HEIGHT, [_legend(list(series)), *parts])


def bar_chart(title: str, bars: Mapping[str, float]) -> str:
    """Bars beside each other's names, one below the other.

    Args:
        title: what it shows, for those who cannot see it.
        bars: the length of each, not negative.
    """
    highest = max(bars.values(), default=0.0) or 1.0
    room = WIDTH - _LABEL - 72
    parts = []
    for number, (name, value) in enumerate(bars.items()):
        y = _GAP + number * (_BAR + _GAP)
        label = name if len(name) <= _LABEL_CHARACTERS else name[: _LABEL_CHARACTERS - 1] + "…"
        length = max(room * value / highest, 1.0)
        tip = f"<title>{escape(name)}: {_short(value)}</title>"
        parts.append(_text(_LABEL - 8, y + 13, label, "end"))
        parts.append(
            f'<rect x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{_colour(0)}">{tip}</rect>'
        )
        parts.append(_text(_LABEL + length + 6, y + 13, _short(value)))
    return _svg(title, _GAP + len(bars) * (_BAR + _GAP), parts)


def spread(values: Sequence[Value], count: int) -> list[Value]:
    """Some of ordered values, evenly spread, the first and the last among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(number * (len(values) - 1) / (count - 1))] for number in range(count)]


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return head + "".join(parts) + "</svg>"


def _legend(names: Sequence[str]) -> str:
    parts, x = [], float(_LEFT)
    for number, name in enumerate(names):
        parts.append(f'<rect x="{x:.0f}" y="6" width="10" height="10" rx="2" fill="{_colour(number)}"/>')
        parts.append(_text(x + 15, 15, name))
        x += 34 + 7 * len(name)
    return "".join(parts)


def _grid(highest: float, height: int) -> str:
    parts = []
    for number in range(5):
        y = _TOP + height * (1 - number / 4)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>')
        parts.append(_text(_LEFT - 6, y + 4, _short(highest * number / 4), "end"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _colour(number: int) -> str:
    return f"var(--series-{number % SERIES + 1})"


def _nice(value: float) -> float:
    """The next number at or above a value that people like at the end of an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    steps = (1, 2, 4, 5, 8, 10)
    return next(power * step for step in steps if value <= power * step * (1 + 1e-9))


def _short(value: float) -> str:
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    for size, unit in units:
        if value >= size * 10:
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if value == floor(value) else f"{value:.3g}"
