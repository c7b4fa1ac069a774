"""Plots of reports: matplotlib draws them as SVG, small enough for a phone. The page scales them,
and its style sets their colours, which differ in dark mode.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.reports import pages

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["bars", "columns"]

WIDTH_PT = 360
POINTS = 72
LONGEST_NAME = 52
BAR_PT = 11
TEXT_PT = 15
SERIES = ("one", "two")
_INK = "#0a0001"
_COLORS = {
    _INK: "var(--ink)",
    "#0a0002": "var(--soft)",
    "#0a0003": "var(--line)",
    "#0a0004": "var(--one)",
    "#0a0005": "var(--two)",
}
"""Colours that stand for those of the page's style sheet, and are replaced in the SVG."""
_COLOR_OF = {name.removeprefix("var(--").removesuffix(")"): c for c, name in _COLORS.items()}
_RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kstore",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _COLOR_OF["line"],
    "xtick.color": _COLOR_OF["soft"],
    "ytick.color": _COLOR_OF["soft"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_FIXED_SIZE = re.compile(r' (?:width|height)="[^"]*"')
_OWN_STYLE = re.compile(r"<defs>\s*<style.*?</defs>", re.DOTALL)
"""A style in the SVG would apply to the whole page."""
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def bars(rows: Sequence[tuple[str, Sequence[int]]], series: Sequence[str]) -> Markup:
    """Horizontal bars from zero, one or two a row; the row's name is above, values at the ends."""
    row_pt = TEXT_PT + len(series) * (BAR_PT + 2) + 4
    height_pt = max(len(rows), 1) * row_pt
    with _figure(height_pt) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        largest = max((value for _, values in rows for value in values), default=0) or 1
        axes.set_xlim(0, largest * 1.3)  # room for the value after the longest bar
        axes.set_ylim(height_pt, 0)
        for at, (name, values) in enumerate(rows):
            top = at * row_pt
            axes.text(0, top + TEXT_PT - 4, _short(name), va="baseline")
            for line, (look, value) in enumerate(zip(SERIES, values, strict=False)):
                y = top + TEXT_PT + line * (BAR_PT + 2)
                width = max(value, largest / WIDTH_PT) if value else 0
                drawn = axes.barh(y, width, BAR_PT, align="edge", color=_COLOR_OF[look])
                axes.bar_label(drawn, [pages.number(value)], padding=4, color=_COLOR_OF["soft"])
        svg = _svg(figure, ", ".join(series))
    if len(series) == 1:
        return svg
    return pages.legend(list(zip(SERIES, series, strict=False))) + svg


def columns(values: Sequence[tuple[str, int]], what: str) -> Markup:
    """Columns of a distribution; the first, the middle and the last name are below them."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    with _figure(170) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        axes.bar(range(len(values)), [value for _, value in values], 0.9, color=_COLOR_OF["one"])
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.set_ylim(bottom=0)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=_COLOR_OF["line"], linewidth=0.6)
        axes.spines["left"].set_visible(False)
        last = len(values) - 1
        ticks = sorted({0, last // 2, last}) if last > 1 else list(range(len(values)))
        axes.set_xticks(ticks, [values[at][0] for at in ticks])
        axes.set_xlim(-0.6, max(last, 0) + 0.6)
        if last > 1:  # names at the edges stay inside the plot
            axes.get_xticklabels()[0].set_horizontalalignment("left")
            axes.get_xticklabels()[-1].set_horizontalalignment("right")
        return _svg(figure, what)


def _short(name: str) -> str:
    """A name on one line that fits: shows its beginning and its end."""
    if len(name) <= LONGEST_NAME:
        return name
    half = LONGEST_NAME // 2
    return f"{name[: half - 1]}…{name[-half:]}"


@contextmanager
def _figure(height_pt: float) -> Iterator[Figure]:
    """A figure with our settings. matplotlib's fonts only measure the text, so missing glyphs need
    no warning.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings: Any = _RC  # its type is a list of all settings there are
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield Figure(figsize=(WIDTH_PT / POINTS, height_pt / POINTS))


def _svg(figure: Figure, what: str) -> Markup:
    """The SVG element, without a size of its own."""
    from markupsafe import Markup

    drawn = StringIO()
    figure.savefig(drawn, format="svg", transparent=True, metadata=_NO_METADATA)
    text = drawn.getvalue()
    opening, rest = text[text.index("<svg") :].split(">", 1)
    text = _FIXED_SIZE.sub("", opening) + ">" + _OWN_STYLE.sub("", rest, count=1)
    for color, variable in _COLORS.items():
        text = text.replace(color, variable)
    label = Markup('<svg role="img" aria-label="{}"').format(what)
    return Markup(text.replace("<svg", label, 1))
