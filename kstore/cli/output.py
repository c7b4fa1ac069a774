"""The output of commands: rows as a table, or as JSON, one object per line; errors for single
items.
"""

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

    def print(self, data: Mapping[str, Any], sentence: str) -> None:
        """Print one object, or a sentence."""
        print(json_text.dumps(data) if self.json else sentence)

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print rows. The columns are keys of the rows; JSON has all keys of a row."""
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
        """Print the successful items, then the failed ones. Failures make the command exit with
        FAILED.
        """
        for item, result in results.items():
            self.print(*tell(item, result))
        for error in results.errors.values():
            fail(str(error))
        if results.errors:
            raise SystemExit(FAILED)


def table_lines(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """The lines of a table with a title line; nothing if there are no rows."""
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
