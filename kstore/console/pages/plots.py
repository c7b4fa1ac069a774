"""Line plots as inline SVG: they need no script, so they are also printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from markupsafe import Markup

from kstore.console.pages.shown import shown_bytes, shown_number

__all__ = ["plot"]

WIDTH, HEIGHT = 560, 150
LEFT, RIGHT, TOP, BOTTOM = 58, 8, 8, 20
COLORS = 6
"""console.css has so many colours, from line-0 on."""
UNITS: Mapping[str, Callable[[float], str]] = {
    "bytes": shown_bytes,
    "records": lambda value: shown_number(value) + "/s",
    "lag": shown_number,
}

Points = Sequence[tuple[float, float]]


def plot(title: str, lines: Mapping[str, Points], unit: str) -> Markup:
    """Lines by name over a common time. The text alternative has the newest values."""
    shown = UNITS[unit]
    drawn = {name: points for name, points in lines.items() if len(points) > 1}
    if not drawn:
        return Markup(
            f'<figure class="plot empty"><figcaption>{escape(title)}</figcaption>'
            "<p>The plot begins with the second sample, in a few seconds.</p></figure>"
        )
    every = [point for points in drawn.values() for point in points]
    first, last = min(t for t, _ in every), max(t for t, _ in every)
    top = max(v for _, v in (*every, (0.0, 1.0))) * 1.08
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: tuple[float, float]) -> str:
        x = LEFT + across * (point[0] - first) / max(last - first, 1e-9)
        return f"{x:.1f},{TOP + up * (1 - point[1] / top):.1f}"

    message = "; ".join(f"{name}: {shown(points[-1][1])}" for name, points in drawn.items())
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"{title}: {message}", quote=True)}">'
    ]
    for part in (0.0, 0.5, 1.0):
        y = TOP + up * (1 - part)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        text = shown(top * part)
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4}">{text}</text>')
    for place_x, anchor, moment in ((LEFT, "start", first), (WIDTH - RIGHT, "end", last)):
        text = datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S")
        parts.append(f'<text class="tick {anchor}" x="{place_x}" y="{HEIGHT - 5}">{text}</text>')
    for number, points in enumerate(drawn.values()):
        path = " ".join(map(place, points))
        color = f"line-{number % COLORS}"
        if len(drawn) == 1:
            base = f"{TOP + up:.1f}"
            begin, end = path.split(" ", 1)[0].split(",")[0], path.rsplit(" ", 1)[1].split(",")[0]
            parts.append(
                f'<polygon class="area {color}" points="{begin},{base} {path} {end},{base}"/>'
            )
        parts.append(f'<polyline class="line {color}" points="{path}"/>')
    parts.append("</svg>")
    legend = "".join(
        f'<span class="key"><i class="swatch line-{number % COLORS}"></i>{escape(name)} '
        f"<b>{shown(points[-1][1])}</b></span>"
        for number, (name, points) in enumerate(drawn.items())
    )
    return Markup(
        f'<figure class="plot"><figcaption>{escape(title)}</figcaption>{"".join(parts)}'
        f'<div class="legend">{legend}</div></figure>'
    )
