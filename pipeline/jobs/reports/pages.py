"""Pages of reports: headings, figures, tables and strips as one HTML text that works without
scripts and without a network. report.html.jinja has the HTML, plots.py the plots; report.py and
stats_report.py decide on the content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Cell", "Size", "grid", "legend", "page", "section", "strips", "table", "tiles"]

LONG_TEXT = 24
MAX_CELLS = 300
FEW_CELLS = 60
"""Strips with at most this number of cells have gaps between them."""
_WORST_LAST = ("good", "half", "bad")


class Cell(NamedTuple):
    """A cell of a strip: its look (good, bad, half), and its tooltip."""

    look: str
    text: str


class Size(int):
    """A number of bytes, shown as 47.1 MB."""


def number(value: Any) -> str:
    """A number as people read it; anything else as text, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Size):
        from jinja2.filters import do_filesizeformat

        return do_filesizeformat(int(value))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)


def page(title: str, verdict: str, about: str, body: Iterable[Markup]) -> str:
    """The whole page."""
    return str(_parts().page(title, verdict, about, list(body)))


def section(title: str, about: str, *body: Markup) -> Markup:
    """A heading, a sentence, and what belongs to it."""
    return _made(_parts().section(title, about, body))


def grid(*sections: Markup) -> Markup:
    """Sections side by side if there is room, otherwise one below the other."""
    return _made(_parts().grid(sections))


def tiles(figures: Iterable[tuple[str, Any]]) -> Markup:
    """The few most important numbers."""
    return _made(_parts().tiles(list(figures)))


def table(names: Sequence[str], rows: Sequence[Sequence[Any]], limit: int = 500) -> Markup:
    """Rows; numbers are aligned to the right."""
    numeric = [
        bool(rows) and all(isinstance(row[n], int | float) for row in rows)
        for n in range(len(names))
    ]
    return _made(_parts().table(names, rows, numeric, limit, LONG_TEXT))


def legend(keys: Sequence[tuple[str, str]]) -> Markup:
    """The legend of colours: pairs of a look and its name."""
    return _made(_parts().legend(keys))


def strips(rows: Sequence[tuple[str, Sequence[Cell]]], keys: Sequence[tuple[str, str]]) -> Markup:
    """A strip of cells for each row, from the first offset to the last. If there are more cells
    than fit, neighbours share one, which looks like the worst of them.
    """
    shown = [(name, _fewer(cells)) for name, cells in rows]
    return _made(_parts().strips(shown, keys, FEW_CELLS))


def _fewer(cells: Sequence[Cell]) -> list[Cell]:
    if len(cells) <= MAX_CELLS:
        return list(cells)
    found = []
    for n in range(MAX_CELLS):
        part = cells[n * len(cells) // MAX_CELLS : (n + 1) * len(cells) // MAX_CELLS]
        found.append(max(part, key=lambda cell: _WORST_LAST.index(cell.look)))
    return found


@cache
def _parts() -> Any:
    """The macros of the template."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["number"] = number
    return environment.get_template("report.html.jinja").module


def _made(markup: Any) -> Markup:
    from markupsafe import Markup

    assert isinstance(markup, Markup)
    return markup
