"""Reports as HTML pages, out of the templates in ``templates/``.

Line charts are SVG images, each a URL that contains the image: a page with them needs no other file.
"""

import re
import warnings
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from math import nan
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from quire.spark.pipelines.files import printable

_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False, "date.converter": "concise"}
"""Texts stay texts in the image, and a ``$`` in a name is no formula."""

_TIME = "datetime64[ms]"
_MARGIN_MS = 60_000

_EMS, _CHARACTER, _SYMBOL = 7.2, 0.6, 4.8
"""How many ems of a legend's letters an inch has; how many of them a character takes, and what is beside a name."""

_THINNEST, _THINNER = 1.5, 0.7
"""How wide the last line is, and how much wider each one before it: what is below another one stays visible."""


class Size(NamedTuple):
    width: float
    height: float


WIDE, NARROW = Size(13, 3.2), Size(4.2, 3.6)
"""For a desktop, and for a telephone, on which the texts of a wide chart would be too small to read."""


class Chart(NamedTuple):
    wide: str
    narrow: str


def line_chart(series: Mapping[str, Mapping[int, int]], step: int) -> Chart:
    """Lines over time: by name, the values at times in milliseconds since the epoch.

    Where a line has no value for longer than a step, in milliseconds, it has a gap.
    """
    with matplotlib.rc_context(_SETTINGS):
        return Chart(_lines(series, step, WIDE), _lines(series, step, NARROW))


def _lines(series: Mapping[str, Mapping[int, int]], step: int, size: Size) -> str:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for place, (name, points) in enumerate(series.items(), 1):
        times, values = _with_gaps(points, step)
        width = _THINNEST + _THINNER * (len(series) - place)
        axes.plot(np.array(times, _TIME), values, marker=".", linewidth=width, label=_shortened(printable(name), size))
    axes.set_ylim(0, max([1.0, *[value * 1.1 for points in series.values() for value in points.values()]]))
    if times := [millis for points in series.values() for millis in points]:
        ends = np.array([min(times) - _MARGIN_MS, max(times) + _MARGIN_MS], _TIME)
        axes.set_xlim(*ends)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", alpha=0.3)
    longest = max([len(_shortened(printable(name), size)) for name in series], default=0)
    columns = int(_room(size) // (_SYMBOL + _CHARACTER * longest))
    figure.legend(loc="outside upper left", ncols=max(columns, 1), frameon=False)
    return _url(figure)


def _with_gaps(points: Mapping[int, int], step: int) -> tuple[list[int], list[float]]:
    times, values = list[int](), list[float]()
    for time, value in sorted(points.items()):
        if times and time - times[-1] > step:
            times.append(times[-1] + step)
            values.append(nan)
        times.append(time)
        values.append(value)
    return times, values


def _shortened(name: str, size: Size) -> str:
    """A name that fits into the legend: the middle of a long one is left out, for names differ at their ends."""
    most = int((_room(size) - _SYMBOL) / _CHARACTER)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}\u2026{name[-(most - most // 2) :]}"


def _room(size: Size) -> float:
    """How wide a legend may be, in ems: two are its edges."""
    return size.width * _EMS - 2


def _url(figure: Figure) -> str:
    image = BytesIO()
    with warnings.catch_warnings():
        # The reader's own fonts show the texts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(image, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode()}"


_SEPARATORS = re.compile(r"([./:_@,;=%-]+)")

Drawn = Chart | dict[str, int]  # a chart over time; of a single time, the values by name, which are shown as bars


def over_time(series: Mapping[str, Mapping[int, int]], window: float) -> Drawn:
    if len({time for points in series.values() for time in points}) == 1:
        return {name: next(iter(points.values()), 0) for name, points in series.items()}
    return line_chart(series, round(window * 1000))


def _breakable(text: object) -> Markup:
    """A text that is broken into lines behind separators, so that names stay readable."""
    pieces = _SEPARATORS.split(str(text))
    return Markup("<wbr>").join([escape("".join(pieces[n : n + 2])) for n in range(0, len(pieces), 2)])


def rendered(template: str, **values: object) -> str:
    """A template with its values, all of which are shown as text, never as HTML."""
    loader = PackageLoader("quire.spark.pipelines")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["breakable"] = _breakable
    return environment.get_template(template).render(values)
