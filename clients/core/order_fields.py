"""Finds the key and the number of a record for order checks: in the value, the key, a JSON field or
a header.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterable
from typing import Protocol

from kstore.types import Header

__all__ = ["PLACES", "HasFields", "field_reader", "number_of"]

PLACES = "value, key, json:FIELD or header:NAME"


class HasFields(Protocol):
    """The fields of a record that can contain keys and numbers."""

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
    """A function that returns a record's value, key, JSON field (of the value) or header; None if
    the record has none. Raises ValueError for any other place.
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
    """The number in a field's text; None if it is not a number."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
