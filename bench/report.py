"""The output of a benchmark: rows, and their table, JSON file and plot. It measures nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

__all__ = ["Goal", "Row", "machine", "markdown", "plot", "write"]


@dataclasses.dataclass(frozen=True)
class Goal:
    """A limit on a row's ratio (kstore / peer) or on kstore's own value: `at_least` or at most."""

    limit: float
    at_least: bool = True
    of: Literal["ratio", "value"] = "ratio"

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.limit:.3g}{'x' if self.of == 'ratio' else ''}"


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison. `value` and `peer_value` are medians in `unit`, the spreads are the smallest
    and the largest of the turns. Without a value, `state` says why: "not served", "failed: ...".
    """

    group: str
    case: str
    value: float | None
    unit: str
    peer: str = ""
    peer_value: float | None = None
    goal: Goal | None = None
    note: str = ""
    spread: tuple[float, float] | None = None
    peer_spread: tuple[float, float] | None = None
    state: str = ""
    peer_state: str = ""

    @property
    def ratio(self) -> float | None:
        """kstore's value over the peer's."""
        if self.value is None or self.peer_value is None or self.peer_value == 0:
            return None
        return self.value / self.peer_value

    @property
    def reached(self) -> bool | None:
        """Whether the goal is met. None if there is no goal, or nothing to compare with. If kstore
        has failed, the goal is missed.
        """
        if self.goal is None:
            return None
        if self.value is None:
            return False if self.state else None
        measured = self.ratio if self.goal.of == "ratio" else self.value
        if measured is None:
            return None
        if self.goal.at_least:
            return measured >= self.goal.limit
        return measured <= self.goal.limit


def machine() -> dict[str, str]:
    """The conditions of the figures."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_kb = Path("/proc/meminfo").read_text().split()[1]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "memory": f"{int(memory_kb) / 2**20:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kstore": commit.stdout.strip() or "unknown",
        "load": Path("/proc/loadavg").read_text().split(" ", 1)[0],
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cell(value: float | None, spread: tuple[float, float] | None, state: str) -> str:
    if value is None:
        return state
    if spread is None:
        return _number(value)
    return f"{_number(value)} [{_number(spread[0])} .. {_number(spread[1])}]"


def _cells(row: Row) -> list[str]:
    reached = {True: "yes", False: "NO", None: ""}[row.reached]
    ours = _cell(row.value, row.spread, row.state)
    theirs = _cell(row.peer_value, row.peer_spread, row.peer_state)
    peer = f"{theirs} ({row.peer})" if theirs else ""
    ratio = f"{_number(row.ratio)}x" if row.ratio is not None else ""
    goal = str(row.goal) if row.goal else ""
    cells = [row.group, row.case, ours, peer, ratio, row.unit, goal, reached, row.note]
    return [cell.replace("|", "/") for cell in cells]


_HEAD = ["group", "case", "kstore", "peer", "ratio", "unit", "goal", "reached", "note"]


def markdown(rows: Iterable[Row], settings: Mapping[str, str]) -> str:
    """A page with the settings and the table."""
    table = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]

    def laid(line: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"

    body = [laid(table[0]), "|" + "|".join("-" * (w + 2) for w in widths) + "|"]
    body += [laid(line) for line in table[1:]]
    header = [f"- {name}: {value}" for name, value in settings.items()]
    return "\n".join(["# kstore bench", "", *header, "", *body, ""])


def write(rows: Sequence[Row], settings: Mapping[str, str], folder: Path) -> str:
    """Write results.md, results.json and results.png into the folder. Returns the table."""
    folder.mkdir(parents=True, exist_ok=True)
    page = markdown(rows, settings)
    (folder / "results.md").write_text(page)
    data = [dataclasses.asdict(row) | {"ratio": row.ratio, "reached": row.reached} for row in rows]
    document = {"settings": dict(settings), "rows": data}
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    plot(rows, folder / "results.png")
    return page


def plot(rows: Sequence[Row], path: Path) -> None:
    """Each row's ratio to its peer on a log scale, with goals as ticks; green if reached, red if
    not.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row.ratio]
    if not shown:
        return
    figure, axis = pyplot.subplots(figsize=(11, 1.2 + 0.28 * len(shown)))
    colours = {True: "#2a9d5c", False: "#c8443b", None: "#8a97a8"}
    places = range(len(shown), 0, -1)
    for place, row in zip(places, shown, strict=True):
        ratio = row.ratio or 1.0
        axis.barh(place, ratio, color=colours[row.reached], height=0.7)
        axis.text(ratio, place, f" {ratio:.2g}x", va="center", fontsize=7)
        if row.goal is not None and row.goal.of == "ratio":
            axis.plot([row.goal.limit] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
    labels = [f"{r.group}: {r.case} [{r.unit}] / {r.peer}" for r in shown]
    axis.set_yticks(list(places), labels, fontsize=7)
    axis.set_xscale("log")
    axis.axvline(1, color="grey", linewidth=0.8)
    axis.set_xlabel(
        "kstore / peer (black tick: the goal; for CPU, time and memory smaller is better)"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
