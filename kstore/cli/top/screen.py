"""The lines of one screen, for a width and a height: sections of sorted rows. Columns that do not
fit are omitted, the least important first. Nothing here sends requests or draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["KEYS", "SORTS", "Line", "Order", "amount", "screen_lines", "size"]

Row = Mapping[str, Any]
GAP = "  "
HELP = "q quit  r rate  l lag  s size  n name  p pause"


class Line(NamedTuple):
    """A line, and its style: "", "title", "header", "bad" or "warn"."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column. The one with the largest ``rank`` is omitted first; 0 never."""

    title: str
    key: str
    show: Callable[[Any], str]
    rank: int = 0
    right: bool = True


def amount(value: float | None) -> str:
    """A number in four characters or so: 950, 1.2k, 34M."""
    if value is None:
        return "-"
    number = float(value)
    for unit in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or unit == "T":
            break
        number /= 1000
    digits = 1 if unit and abs(number) < 10 else 0
    return f"{number:.{digits}f}{unit}"


def size(value: float | None) -> str:
    """Bytes, the same way."""
    return "-" if value is None else f"{amount(value)}B"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"


def _change(value: float | None) -> str:
    if not value:
        return ""
    return ("+" if value > 0 else "") + amount(value)


def _ms(value: float) -> str:
    return f"{value:.0f}ms"


_BROKERS = (
    Column("BROKER", "broker", str, right=False),
    Column("CPU", "cpu_percent", _percent, 1),
    Column("REC/S", "records_per_s", amount),
    Column("IN/S", "in_bytes_per_s", size, 2),
    Column("OUT/S", "out_bytes_per_s", size, 2),
    Column("REQ/S", "requests_per_s", amount, 3),
    Column("CONN", "connections", amount, 5),
    Column("LEADERS", "leaders", str, 4),
    Column("REPLICAS", "replicas", str, 7),
    Column("LOG", "log_bytes", size, 5),
    Column("FREE", "free_bytes", size, 6),
    Column("CONTROLLER", "controller", lambda value: "yes" if value else "", 7, right=False),
    Column("ADDRESS", "address", str, 8, right=False),
)
_TOPICS = (
    Column("TOPIC", "topic", str, right=False),
    Column("REC/S", "records_per_s", amount),
    Column("BYTES/S", "bytes_per_s", size, 1),
    Column("SIZE", "size_bytes", size, 2),
    Column("PARTITIONS", "partitions", str, 4),
    Column("OFFLINE", "offline", str, 3),
    Column("UNDER-REPL", "under_replicated", str, 5),
)
_GROUPS = (
    Column("GROUP", "group", str, right=False),
    Column("LAG", "lag", amount),
    Column("CHANGE", "lag_change", _change, 2),
    Column("REC/S", "records_per_s", amount, 1),
    Column("MEMBERS", "members", str, 3),
    Column("STATE", "state", str, 4, right=False),
)
_HOLDS = (
    Column("LOOP HELD BY", "held_by", str, right=False),
    Column("BROKER", "broker", str),
    Column("HOLDS", "holds", amount),
    Column("HELD", "held_ms", _ms, 1),
    Column("LONGEST", "max_ms", _ms, 2),
)


class Section(NamedTuple):
    """A table of the screen. ``sorts``: order -> the value to sort by, the largest first."""

    key: str
    columns: tuple[Column, ...]
    sorts: Mapping[str, Callable[[Row], Any]]
    keep: Callable[[Row], bool] = lambda row: True


SECTIONS = (
    Section("brokers", _BROKERS, {}),
    Section(
        "topics", _TOPICS,
        {
            "rate": lambda row: (row["bytes_per_s"], row["records_per_s"]),
            "size": lambda row: row["size_bytes"],
        },
    ),
    Section(
        "groups", _GROUPS,
        {"lag": lambda row: row["lag"], "rate": lambda row: row["records_per_s"]},
    ),
    Section(
        "holds", _HOLDS, {"held": lambda row: row["held_ms"]}, lambda row: row["holds"] > 0
    ),
)  # fmt: skip
KEYS = {"r": "rate", "l": "lag", "s": "size", "n": "name"}
SORTS = tuple(KEYS.values())


@dataclass
class Order:
    """The sort order of topics and groups. An order changes the sections that have it."""

    topics: str = "rate"
    groups: str = "lag"
    holds: str = "held"

    def choose(self, name: str) -> None:
        """Sort by this from now on."""
        for section in SECTIONS:
            if section.key in {"topics", "groups"} and (name == "name" or name in section.sorts):
                setattr(self, section.key, name)

    def of(self, section: Section) -> str:
        """The order of one section; brokers are always sorted by id."""
        return str(getattr(self, section.key, ""))


def screen_lines(
    rows: Mapping[str, Any], order: Order, width: int, height: int | None, *, note: str = ""
) -> list[Line]:
    """All lines. ``height`` None: every row."""
    moment = time.strftime("%H:%M:%S", time.localtime(rows["time"]))
    head = f"kstore top  {moment}  every {rows['seconds']:.1f} s  topics by {order.topics}, "
    head += f"groups by {order.groups}"
    lines = [Line(head[:width], "title")]
    if height is not None:
        lines.append(Line(HELP[:width]))
    if note:
        lines.append(Line(note[:width], "bad"))
    if rows["left_out_groups"]:
        left_out = f"{rows['left_out_groups']} more groups were not asked"
        lines.append(Line(left_out[:width], "warn"))
    tables = [(section, _sorted(section, rows[section.key], order)) for section in SECTIONS]
    shown = [(section, found) for section, found in tables if found]
    room = None if height is None else height - len(lines) - 2 * len(shown)
    counts = _share([len(found) for _, found in shown], room)
    for (section, found), count in zip(shown, counts, strict=True):
        lines.append(Line(""))
        lines += _table(section.columns, found, count, width)
    return lines if height is None else lines[:height]


def _sorted(section: Section, rows: Sequence[Row], order: Order) -> list[Row]:
    kept = [row for row in rows if section.keep(row)]
    by = section.sorts.get(order.of(section))
    return kept if by is None else sorted(kept, key=by, reverse=True)


def _share(wanted: list[int], room: int | None) -> list[int]:
    """The number of rows of each section: one more for each in turn, while there is room."""
    if room is None:
        return wanted
    given = [0] * len(wanted)
    while room > 0 and given != wanted:
        for place, want in enumerate(wanted):
            if room > 0 and given[place] < want:
                given[place] += 1
                room -= 1
    return given


def _table(columns: Sequence[Column], rows: list[Row], count: int, width: int) -> list[Line]:
    rows = rows[:count]
    columns = list(columns)
    cells = [[column.title, *(column.show(row[column.key]) for row in rows)] for column in columns]
    widths = [max(map(len, column)) for column in cells]
    while sum(widths) + len(GAP) * (len(widths) - 1) > width and len(columns) > 1:
        place = max(range(len(columns)), key=lambda at: (columns[at].rank, at))
        if columns[place].rank == 0:
            others = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
            widths[0] = max(width - others, 4)
            break
        del columns[place], cells[place], widths[place]
    lines = []
    for at in range(len(rows) + 1):
        parts = [
            _cell(cells[place][at], widths[place], right=column.right)
            for place, column in enumerate(columns)
        ]
        style = "header" if at == 0 else _style(rows[at - 1])
        lines.append(Line(GAP.join(parts).rstrip()[:width], style))
    return lines


def _cell(text: str, width: int, *, right: bool) -> str:
    if len(text) > width:
        text = text[: width - 1] + "…"
    return text.rjust(width) if right else text.ljust(width)


def _style(row: Row) -> str:
    if row.get("offline"):
        return "bad"
    return "warn" if row.get("under_replicated") else ""
