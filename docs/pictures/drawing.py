"""A picture as SVG, from top to bottom: who takes part, what they say to each other, what is in a
log. It is 400 units wide, so that its text can be read on a phone, and follows the reader's choice
of a light or a dark page.
"""

from __future__ import annotations

from html import escape

__all__ = ["Picture"]

WIDTH = 400
CELL = 24
STYLE = """
:root{color-scheme:light dark}
.page{fill:#ffffff}.text{fill:#1f2933}.faint{fill:#52606d}.line{stroke:#7b8794}
.box{fill:#e4f1f1;stroke:#2b7a78}.bad{fill:#fde3e1;stroke:#c0392b}.badtext{fill:#a42a1e}
.badline{stroke:#c0392b}.good{fill:#dff3e0;stroke:#2e7d32}
@media(prefers-color-scheme:dark){.page{fill:#1d232b}.text{fill:#e8edf2}.faint{fill:#a9b4c0}
.line{stroke:#8a97a5}.box{fill:#1f3f40;stroke:#5fb3b0}.bad{fill:#4a2320;stroke:#e57368}
.badtext{fill:#f2988f}.badline{stroke:#e57368}.good{fill:#21412a;stroke:#7bc47f}}
text{font:14px system-ui,sans-serif}.small{font-size:12.5px}.head{font-weight:600}
"""


class Picture:
    """Shapes are added below each other; ``lanes`` are the columns, by the names at their head."""

    def __init__(self, title: str, lanes: tuple[str, ...]) -> None:
        self._title = title
        self._y = 12
        step = WIDTH // len(lanes)
        self._x = {name: step // 2 + step * place for place, name in enumerate(lanes)}
        self._shapes: list[str] = []
        for name, x in self._x.items():
            self._rect(x - 58, self._y, 116, 26, "box")
            self._text(x, self._y + 18, name, "text head")
        self._y += 40
        self._top = self._y - 14

    def _rect(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
            f'class="{kind}"/>'
        )

    def _text(self, x: float, y: float, text: str, kind: str, anchor: str = "middle") -> None:
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
        )

    def says(self, who: str, to: str, text: str, *, bad: bool = False) -> Picture:
        """An arrow from one to another with a text above it; ``bad``: this is the mistake."""
        start, end = self._x[who], self._x[to]
        tip = 6 if end > start else -6
        self._text((start + end) / 2, self._y + 12, text, "badtext small" if bad else "text small")
        y = self._y + 20
        kind = "badline" if bad else "line"
        self._shapes.append(
            f'<path d="M{start} {y}H{end}m{-tip} -4l{tip} 4l{-tip} 4" fill="none" class="{kind}"/>'
        )
        self._y += 34
        return self

    def note(self, *lines: str, kind: str = "box") -> Picture:
        """Something that happens, over the whole width: "box", "bad" or "good"."""
        height = 10 + 18 * len(lines)
        self._rect(8, self._y, WIDTH - 16, height, kind)
        for place, line in enumerate(lines):
            self._text(WIDTH / 2, self._y + 19 + 18 * place, line, "text small")
        self._y += height + 10
        return self

    def log(self, name: str, cells: tuple[str, ...], *, bad: tuple[int, ...] = ()) -> Picture:
        """A log's records by offset; an empty cell has none. ``bad`` are the offsets in red."""
        self._text(8, self._y + 14, name, "text small head", "start")
        self._y += 22
        width = min(64, (WIDTH - 16) // len(cells))
        for offset, cell in enumerate(cells):
            x = 8 + offset * width
            self._rect(x, self._y, width - 3, CELL, "bad" if offset in bad else "box")
            self._text(x + width / 2 - 1.5, self._y + 17, cell, "text small")
            self._text(x + width / 2 - 1.5, self._y + CELL + 14, str(offset), "faint small")
        self._y += CELL + 26
        return self

    def svg(self) -> str:
        """The file's text."""
        bottom = self._y - 4
        lines = "".join(
            f'<path d="M{x} {self._top}V{bottom}" stroke-dasharray="3 4" class="line"/>'
            for x in self._x.values()
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._y + 4}" '
            f'width="{WIDTH}" role="img"><title>{escape(self._title)}</title>'
        )
        page = f'<rect width="{WIDTH}" height="{self._y + 4}" class="page"/>'
        body = "\n".join([page, lines, *self._shapes])
        return f"{head}\n<style>{STYLE}</style>\n{body}\n</svg>\n"
