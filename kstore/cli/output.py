"""What commands print: rows as a table, or as JSON, one object a line; and errors item by item."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kstore.cli.failure import FAILED, fail

if TYPE_CHECKING:
    from kstore.clients.admin import Results

__all__ = ["Output", "table_lines"]

K = TypeVar("K")
T = TypeVar("T")


class Output:
    """The output of one command."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def say(self, data: Mapping[str, Any], sentence: str) -> None:
        """One thing, as an object or as a sentence."""
        print(json_text.dumps(data) if self.json else sentence)

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Rows; the columns are keys of theirs. JSON has all keys of a row."""
        rows = list(rows)
        if self.json:
            for row in rows:
                print(json_text.dumps(row))
            return
        for line in table_lines(rows, columns):
            print(line)

    def report(
        self, results: Results[K, T], tell: Callable[[K, T], tuple[Mapping[str, Any], str]]
    ) -> None:
        """What was done, item by item; then what was not, which ends the command with FAILED."""
        for item, result in results.items():
            self.say(*tell(item, result))
        for error in results.errors.values():
            fail(str(error))
        if results.errors:
            raise SystemExit(FAILED)


def table_lines(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """The lines of a table with a line of titles; none without rows."""
    lines = [[title.replace("_", " ").upper() for title in columns]]
    lines += [[_cell(row[key]) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [
        bool(rows) and all(isinstance(row[key], int | float | None) for row in rows)
        for key in columns
    ]
    for line in lines if rows else ():
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(_cell, value)) or "-"
    return str(value)
