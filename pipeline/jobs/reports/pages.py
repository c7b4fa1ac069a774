"""Pages of reports: headings, figures, tables and plots as one HTML text that needs nothing else,
no script and no network. What stands in them is the reports' business (report.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

__all__ = ["Cell", "bars", "columns", "page", "section", "strips", "table", "tiles"]

WIDTH = 900
LABEL_WIDTH = 230
ROW_HEIGHT = 22
BAR_HEIGHT = 12
GAP = 2
CHARACTER_WIDTH = 7
LONG_TEXT = 24
MAX_CELLS = 300
_STYLE = """
:root { --page: #ffffff; --ink: #1f2328; --soft: #656d76; --line: #d8dee4; --panel: #f6f8fa;
  --one: #2a6fdb; --two: #e0702f; --good: #2e8b57; --bad: #c9302c; --half: #d9a21b; }
@media (prefers-color-scheme: dark) { :root { --page: #16191d; --ink: #e6e9ec; --soft: #98a1ab;
  --line: #353b42; --panel: #1e2328; --one: #5b97f0; --two: #ef8c52; --good: #4bb07c;
  --bad: #ec6a66; --half: #e2b44a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1000px; padding: 24px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 4px 0 12px; color: var(--soft); }
.verdict { font-weight: 600; color: var(--ink); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 10px 16px; min-width: 130px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 4px 10px; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td { min-width: 100px; overflow-wrap: anywhere; } td.long { min-width: 240px; }
th { color: var(--soft); font-weight: 500; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { min-width: 0; white-space: nowrap; }
svg { display: block; width: 100%; min-width: 800px; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin: 0 6px 0 16px; }
.key:first-child { margin-left: 0; }
.one { fill: var(--one); background: var(--one); }
.two { fill: var(--two); background: var(--two); }
.good { fill: var(--good); background: var(--good); }
.bad { fill: var(--bad); background: var(--bad); }
.half { fill: var(--half); background: var(--half); }
.axis { stroke: var(--line); }
"""


class Cell(NamedTuple):
    """One cell of a strip: how it looks (good, bad, half), and what it says when pointed at."""

    look: str
    said: str


def number(value: Any) -> str:
    """A number as people read it; anything else as text, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)


def page(title: str, verdict: str, about: str, body: Iterable[str]) -> str:
    """The whole page."""
    parts = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="verdict">{escape(verdict)}</p>\n'
        f"<p>{escape(about)}</p>\n{parts}\n</body></html>\n"
    )


def section(title: str, about: str, *body: str) -> str:
    """A heading, a sentence, and what belongs to it."""
    return f"<h2>{escape(title)}</h2>\n<p>{escape(about)}</p>\n" + "\n".join(body)


def tiles(figures: Iterable[tuple[str, Any]]) -> str:
    """The few numbers that matter most."""
    made = (
        f'<div class="tile"><b>{escape(number(value))}</b><span>{escape(name)}</span></div>'
        for name, value in figures
    )
    return f'<div class="tiles">{"".join(made)}</div>'


def table(names: Sequence[str], rows: Sequence[Sequence[Any]], limit: int = 500) -> str:
    """Rows; numbers to the right."""
    numeric = [bool(rows) and all(isinstance(r[n], int | float) for r in rows)
               for n in range(len(names))]  # fmt: skip

    def line(tag: str, cells: Sequence[Any]) -> str:
        made = []
        for cell, right in zip(cells, numeric, strict=True):
            said = number(cell)
            look = " class=n" if right else " class=long" if len(said) > LONG_TEXT else ""
            made.append(f"<{tag}{look}>{escape(said)}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    body = "\n".join(line("td", row) for row in rows[:limit])
    more = (
        f"<p>and {len(rows) - limit:,} more, in the Parquet files</p>" if len(rows) > limit else ""
    )
    return f'<div class="wide"><table>{line("th", names)}\n{body}</table></div>{more}'


def _legend(keys: Sequence[tuple[str, str]]) -> str:
    made = (f'<span class="key {look}"></span>{escape(name)}' for look, name in keys)
    return f"<p>{''.join(made)}</p>"


def _svg(height: int, parts: Iterable[str], said: str) -> str:
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(said)}">{"".join(parts)}</svg></div>'
    )


def _text(x: float, y: float, said: str, look: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" class="{look}" text-anchor="{anchor}">{escape(said)}</text>'
    )


def _label(y: float, name: str) -> str:
    shown = name if len(name) <= 32 else f"{name[:12]}…{name[-19:]}"
    return f"<g><title>{escape(name)}</title>{_text(LABEL_WIDTH - 10, y, shown, '', 'end')}</g>"


def bars(rows: Sequence[tuple[str, Sequence[float]]], series: Sequence[str], unit: str = "") -> str:
    """Lying bars from zero, one or two a row, each with its value written at its end."""
    looks = ("one", "two")[: len(series)]
    largest = max((value for _, values in rows for value in values), default=0) or 1
    room = WIDTH - LABEL_WIDTH - 110
    height_of_row = len(series) * (BAR_HEIGHT + GAP) + 10
    parts = []
    for at, (name, values) in enumerate(rows):
        top = at * height_of_row + 4
        parts.append(_label(top + height_of_row / 2, name))
        for line, (look, value, of) in enumerate(zip(looks, values, series, strict=True)):
            y = top + line * (BAR_HEIGHT + GAP)
            width = max(value / largest * room, 1 if value else 0)
            said = f"{name}, {of}: {number(value)}{unit}"
            parts.append(
                f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2" '
                f'class="{look}"><title>{escape(said)}</title></rect>'
            )
            end = LABEL_WIDTH + width + 6
            parts.append(_text(end, y + BAR_HEIGHT - 2, number(value) + unit, "soft"))
    height = len(rows) * height_of_row + 8
    axis = f'<line x1="{LABEL_WIDTH}" x2="{LABEL_WIDTH}" y1="0" y2="{height}" class="axis"/>'
    legend = _legend(list(zip(looks, series, strict=True))) if len(series) > 1 else ""
    return legend + _svg(height, [axis, *parts], ", ".join(series))


def columns(values: Sequence[tuple[str, float]], said: str) -> str:
    """Standing bars along an axis, for a distribution; some names stand below, and above the
    largest its value.
    """
    height, base = 190, 150
    largest = max((value for _, value in values), default=0) or 1
    step = WIDTH / max(len(values), 1)
    highest = max(range(len(values)), key=lambda at: values[at][1], default=0)
    parts = [f'<line x1="0" x2="{WIDTH}" y1="{base}" y2="{base}" class="axis"/>']
    for at, (name, value) in enumerate(values):
        tall = value / largest * (base - 24)
        x = at * step + 1
        parts.append(
            f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{max(step - GAP, 1):.1f}" '
            f'height="{tall:.1f}" rx="2" class="one"><title>{escape(name)}: {number(value)}</title>'
            "</rect>"
        )
        if at == highest:
            parts.append(_beside(x + step / 2, base - tall - 6, number(value)))
    for at in range(0, len(values), max(len(values) // 8, 1)):
        parts.append(_beside(at * step + step / 2, base + 18, values[at][0]))
    return _svg(height, parts, said)


def _beside(x: float, y: float, said: str) -> str:
    """A text around x, or as near to it as it is seen in full."""
    half = len(said) * CHARACTER_WIDTH / 2
    if x < half:
        return _text(0, y, said, "soft")
    if x > WIDTH - half:
        return _text(WIDTH, y, said, "soft", "end")
    return _text(x, y, said, "soft", "middle")


def strips(rows: Sequence[tuple[str, Sequence[Cell]]], keys: Sequence[tuple[str, str]]) -> str:
    """One strip of cells a row, from the first offset to the last; where there are more cells than
    can be seen, neighbours share one and the worst of them shows.
    """
    room = WIDTH - LABEL_WIDTH
    parts = []
    for at, (name, cells) in enumerate(rows):
        y = at * ROW_HEIGHT + 4
        parts.append(_label(y + BAR_HEIGHT, name))
        shown = _fewer(cells)
        step = room / max(len(shown), 1)
        gap = GAP if step > 6 else 0
        for n, cell in enumerate(shown):
            parts.append(
                f'<rect x="{LABEL_WIDTH + n * step:.1f}" y="{y}" width="{step - gap:.2f}" '
                f'height="{BAR_HEIGHT + 2}" class="{cell.look}">'
                f"<title>{escape(name)}: {escape(cell.said)}</title></rect>"
            )
    return _legend(keys) + _svg(len(rows) * ROW_HEIGHT + 8, parts, "blocks by offset")


def _fewer(cells: Sequence[Cell]) -> list[Cell]:
    if len(cells) <= MAX_CELLS:
        return list(cells)
    order = ("good", "half", "bad")
    found = []
    for n in range(MAX_CELLS):
        part = cells[n * len(cells) // MAX_CELLS : (n + 1) * len(cells) // MAX_CELLS]
        found.append(max(part, key=lambda cell: order.index(cell.look)))
    return found
