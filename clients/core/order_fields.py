"""Where in a record its key and its number are, for checks of order: value, key, a field of JSON or
a header. It reads nothing but the record that it is given.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterable
from typing import Protocol

from kstore.types import Header

__all__ = ["PLACES", "HasFields", "field_reader", "number_of"]

PLACES = "value, key, json:FIELD or header:NAME"


class HasFields(Protocol):
    """A record, as far as keys and numbers are looked for in it."""

    @property
    def key(self) -> bytes | None:
        """The key."""

    @property
    def value(self) -> bytes | None:
        """The value."""

    @property
    def headers(self) -> Iterable[Header]:
        """The headers."""


def field_reader(place: str) -> Callable[[HasFields], bytes | None]:
    """What reads a record's value, key, JSON field (of the value) or header; None: it has none.
    Raises ValueError for a place that is none of these.
    """
    kind, colon, name = place.partition(":")
    if place == "value":
        return lambda record: record.value
    if place == "key":
        return lambda record: record.key
    if kind == "header" and colon and name:
        return lambda record: next((h.value for h in record.headers if h.key == name), None)
    if kind == "json" and colon and name:
        return lambda record: _json_field(record.value, name)
    raise ValueError(f"{place!r} is not {PLACES}")


def _json_field(value: bytes | None, name: str) -> bytes | None:
    try:
        found = json_text.loads(value or b"")
    except ValueError:
        return None
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found.encode() if isinstance(found, str) else json_text.dumps(found).encode()


def number_of(text: bytes | None) -> int | None:
    """The number that a field holds as text; None: it is none."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
