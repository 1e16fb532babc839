"""Line charts as SVG images, each a URL that contains the image: a page with them needs no other file."""

import warnings
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from quire.spark.pipelines.printing import printable

_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False, "date.converter": "concise"}
"""Texts stay texts in the image, and a ``$`` in a name is no formula."""

_TIME = "datetime64[ms]"
_MARGIN_MS = 60_000

_LEGEND, _SYMBOL = 13, 5
"""How many characters of a legend fit into an inch, and how many the symbol before a name takes."""


class Size(NamedTuple):
    """The size of a chart, in inches."""

    width: float
    height: float


WIDE, NARROW = Size(13, 3.2), Size(4.2, 3.6)
"""For a desktop, and for a telephone, on which the texts of a wide chart would be too small to read."""


class Chart(NamedTuple):
    """The same chart in both sizes."""

    wide: str
    narrow: str


def line_chart(series: Mapping[str, Mapping[int, int]]) -> Chart:
    """Lines over time: by name, the values at times in milliseconds since the epoch."""
    with matplotlib.rc_context(_SETTINGS):
        return Chart(_lines(series, WIDE), _lines(series, NARROW))


def _lines(series: Mapping[str, Mapping[int, int]], size: Size) -> str:
    figure, axes = _empty(size)
    for name, points in series.items():
        axes.plot(np.array(list(points), _TIME), list(points.values()), marker=".", label=printable(name))
    axes.set_ylim(0, max([1.0, *[value * 1.1 for points in series.values() for value in points.values()]]))
    if times := [millis for points in series.values() for millis in points]:
        ends = np.array([min(times) - _MARGIN_MS, max(times) + _MARGIN_MS], _TIME)
        axes.set_xlim(*ends)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", alpha=0.3)
    columns = round(size.width * _LEGEND) // max([1, *[len(name) + _SYMBOL for name in series]])
    figure.legend(loc="outside upper left", ncols=max(columns, 1), frameon=False)
    return _url(figure)


def _empty(size: Size) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(size.width, size.height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _url(figure: Figure) -> str:
    image = BytesIO()
    with warnings.catch_warnings():
        # The reader's own fonts show the texts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(image, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode()}"
