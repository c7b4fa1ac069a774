"""Splits wide requests: a request with many rows (topics, partitions, groups, resources) becomes
several requests with few rows. The handler answers one after the other, and the responses are
joined.

This works for APIs that answer each row separately. large_requests.py lets other requests run
between the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from kstore.broker.api.requests.error_responses import ROWS, Rows, field_exists, row_key
from kstore.protocol.schema import Struct

__all__ = [
    "PIECES", "Joinable", "Joined", "JoinedResponse", "Pieces", "is_wide", "pieces_of", "rows_for",
]  # fmt: skip


class Pieces(NamedTuple):
    """How the rows of an API are divided."""

    rows: int = 64
    """The number of rows in one piece. If rows contain rows (partitions of topics), the innermost
    ones count.
    """
    once: bool = False
    """Whether a repeated row with equal fields is answered once, because the API only reads."""
    together: bool = False
    """Whether rows with the same name must be in one piece (at most two of them), because naming a
    row twice is an error.
    """


PIECES: dict[int, Pieces] = {
    2: Pieces(together=True),
    3: Pieces(rows=256),
    8: Pieces(),
    9: Pieces(once=True),
    10: Pieces(once=True),
    13: Pieces(),
    15: Pieces(once=True),
    19: Pieces(rows=16, together=True),
    20: Pieces(rows=16, together=True),
    21: Pieces(),
    23: Pieces(),
    27: Pieces(),
    28: Pieces(),
    32: Pieces(rows=8, once=True),
    33: Pieces(rows=8, together=True),
    37: Pieces(rows=16, together=True),
    42: Pieces(once=True),
    43: Pieces(),
    44: Pieces(rows=8, together=True),
    45: Pieces(),
    47: Pieces(),
    61: Pieces(),
    65: Pieces(once=True),
    69: Pieces(once=True),
    89: Pieces(once=True),
    25300: Pieces(),
    25301: Pieces(rows=32),
}
"""API key to how its rows are divided."""
_LEFT = Rows("members", "members", (), has_partitions=False)
DIVIDED: dict[int, tuple[Rows, ...]] = {13: (_LEFT,)}
"""Rows of requests that can be divided although they have no error for each row."""


Chain = tuple[Any, ...]
"""An innermost row, after the rows that contain it."""


def rows_for(request: Any, version: int) -> Rows | None:
    """The rows by which a request of this version can be divided, or None."""
    if request.API_KEY not in PIECES:
        return None
    cls = type(request)
    known = DIVIDED.get(request.API_KEY) or ROWS[request.API_KEY]
    found = (rows for rows in known if field_exists(cls, rows.request_field, version))
    return next(found, None)


def is_wide(request: Any, rows: Rows) -> bool:
    """Whether the request has more rows than a piece."""
    left = PIECES[request.API_KEY].rows
    for item in getattr(request, rows.request_field) or ():
        left -= _count(item, rows.inner) if rows.inner is not None else 1
        if left < 0:
            return True
    return False


def _count(item: Any, rows: Rows) -> int:
    inner = getattr(item, rows.request_field) or ()
    if rows.inner is None:
        return max(len(inner), 1)
    return sum(_count(each, rows.inner) for each in inner) or 1


def pieces_of(request: Any, rows: Rows, version: int) -> Iterator[Any]:
    """Yield the request with its first rows, then with the next rows, and so on. Yields None where
    other work may run.
    """
    how = PIECES[request.API_KEY]
    counts: dict[Any, int] = {}
    if how.together:
        for number, chain in enumerate(_chains(request, rows)):
            name = _name(chain, rows, version)
            counts[name] = counts.get(name, 0) + 1
            if number % 1024 == 1023:
                yield None
    part: list[Chain] = []
    for number, chain in enumerate(_chains(request, rows)):
        if number % 1024 == 1023:
            yield None
        if how.once or how.together:
            name = _whole(chain, rows) if how.once else _name(chain, rows, version)
            count = counts.get(name, 1)
            counts[name] = 0
            part += [chain] * min(count, 2)
        else:
            part.append(chain)
        if len(part) >= how.rows:
            yield _with(request, rows, part)
            part = []
    if part:
        yield _with(request, rows, part)


def _chains(requested: Any, rows: Rows, above: Chain = ()) -> Iterator[Chain]:
    """All innermost rows."""
    for item in getattr(requested, rows.request_field) or ():
        inner = rows.inner
        if inner is not None and getattr(item, inner.request_field):
            yield from _chains(item, inner, (*above, item))
        else:
            yield *above, item


def _name(chain: Chain, rows: Rows | None, version: int) -> Chain:
    """The name of an innermost row."""
    name = []
    for item in chain:
        assert rows is not None
        for _, field in rows.keys:
            if not field:
                name.append(item)
            elif field_exists(type(item), field, version):
                name.append(getattr(item, field))
        rows = rows.inner
    return tuple(name)


def _whole(chain: Chain, rows: Rows | None) -> Chain:
    """All fields of an innermost row and of the rows that contain it."""
    parts: list[Any] = []
    for item in chain:
        assert rows is not None
        inner = None if rows.inner is None else rows.inner.request_field
        if not isinstance(item, Struct):
            parts.append(item)
            continue
        for field in type(item).SPECS:
            if field != inner:
                value = getattr(item, field)
                parts.append(tuple(value) if isinstance(value, list) else value)
        rows = rows.inner
    return tuple(parts)


def _with(requested: Any, rows: Rows, chains: list[Chain]) -> Any:
    """A copy of the request or row with only these rows."""
    kept = []
    for _, found in groupby(chains, lambda chain: id(chain[0])):
        same = list(found)
        if rows.inner is None or len(same[0]) == 1:
            kept += [chain[0] for chain in same]
        else:
            kept.append(_with(same[0][0], rows.inner, [chain[1:] for chain in same]))
    return requested.replaced(**{rows.request_field: kept})


class Joinable(Protocol):
    """A response that can be joined with the response to the next piece."""

    def joined_with(self, answer: Any, /) -> Any:
        """Join both."""


class JoinedResponse:
    """Joins the responses to pieces for an API whose responses are Joinable (Metadata)."""

    def __init__(self) -> None:
        self.response: Joinable | None = None

    def add(self, answer: Joinable) -> bool:
        """Add the next answer."""
        self.response = answer if self.response is None else self.response.joined_with(answer)
        return True


class Joined:
    """Joins the responses to the pieces."""

    def __init__(self, rows: Rows, version: int) -> None:
        self.response: Any = None
        self._rows = rows
        self._version = version
        self._tables: _Tables = {}

    def add(self, answer: Any) -> bool:
        """Append the rows of the next response. Returns False if it has an error for the whole
        request; then no further piece is processed.
        """
        if self.response is None:
            self.response = answer
            told = getattr(answer, self._rows.response_field)
            setattr(answer, self._rows.response_field, [])
        else:
            told = getattr(answer, self._rows.response_field)
        _put(
            told,
            getattr(self.response, self._rows.response_field),
            self._rows,
            self._version,
            self._tables,
        )
        # The throttle time of a piece includes that of all earlier pieces (CopyBatches).
        wait_ms = getattr(answer, "throttle_time_ms", 0)
        if wait_ms > getattr(self.response, "throttle_time_ms", 0):
            self.response.throttle_time_ms = wait_ms
        code = getattr(answer, "error_code", 0)
        if code:
            self.response.error_code = code
        return not code


_Tables = dict[Any, tuple[Any, "_Tables"]]
"""Rows by key, each with the rows that it contains."""


def _put(items: Any, told: list[Any], rows: Rows, version: int, known: _Tables) -> None:
    """Append rows. If a row continues an earlier one, the rows in it are appended to that one's."""
    if rows.inner is None:
        told += items
        return
    for item in items:
        key = row_key(item, rows, version)
        found = known.get(key)
        if found is not None:
            into = getattr(found[0], rows.inner.response_field)
            _put(getattr(item, rows.inner.response_field), into, rows.inner, version, found[1])
            continue
        told.append(item)
        table: _Tables = {}
        known[key] = (item, table)
        if rows.inner.inner is not None:
            for each in getattr(item, rows.inner.response_field):
                table[row_key(each, rows.inner, version)] = (each, {})
