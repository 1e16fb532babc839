"""Charts as SVG images, each a URL that contains the image: a page with them needs no other file."""

import warnings
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from quire.spark.pipelines.printing import printable

_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False, "date.converter": "concise"}
"""Texts stay texts in the image, and a ``$`` in a name is no formula."""

_WIDTH = 9.0
_LABEL = 38
_TIME = "datetime64[ms]"
_MARGIN_MS = 60_000


def line_chart(series: Mapping[str, Mapping[int, int]]) -> str:
    """Lines over time: by name, the values at times in milliseconds since the epoch."""
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = _empty(3.0)
        for name, points in series.items():
            axes.plot(np.array(list(points), _TIME), list(points.values()), marker=".", label=name)
        axes.set_ylim(0, max([1.0, *[value * 1.1 for points in series.values() for value in points.values()]]))
        if times := [millis for points in series.values() for millis in points]:
            ends = np.array([min(times) - _MARGIN_MS, max(times) + _MARGIN_MS], _TIME)
            axes.set_xlim(*ends)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.grid(axis="y", alpha=0.3)
        figure.legend(loc="outside upper left", ncols=len(series), frameon=False)
        return _url(figure)


def bar_chart(bars: Mapping[str, int]) -> str:
    """Bars one below the other, each with its name and its value."""
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = _empty(0.4 + 0.3 * len(bars))
        names = [printable(name) for name in bars]
        labels = [name if len(name) <= _LABEL else name[: _LABEL - 1] + "…" for name in names]
        drawn = axes.barh(range(len(bars)), list(bars.values()), tick_label=labels)
        axes.bar_label(drawn, fmt="{:,.0f}", padding=4)
        axes.invert_yaxis()
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        return _url(figure)


def _empty(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
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
