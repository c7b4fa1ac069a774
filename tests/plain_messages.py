"""Kafka's messages from plain values: an API by its name, and dicts for the structures inside.

``Ask.OffsetDelete(group_id="g", topics=[{"name": "t"}])`` is a request and ``Answer.Heartbeat()`` a
response. A name that no API or field has is refused. It encodes nothing: the schemas do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from kstore.protocol.registry import APIS
from kstore.protocol.schema import Struct, field_type

_BY_NAME = {api.name: api for api in APIS.values()}


class _Messages:
    """The requests, or the responses, of all APIs."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, api: str) -> Callable[..., Any]:
        if api not in _BY_NAME:
            raise AttributeError(f"no API is called {api}")
        return partial(_made, getattr(_BY_NAME[api], self._part))


Ask, Answer = _Messages("request"), _Messages("response")


def error_codes(message: Any) -> list[int]:
    """All error codes in a message, at every depth."""
    if isinstance(message, list):
        return [code for each in message for code in error_codes(each)]
    if not isinstance(message, Struct):
        return []
    values = {name: getattr(message, name) for name in message.SPECS}
    own = [value for name, value in values.items() if name.endswith("error_code")]
    return own + [code for value in values.values() for code in error_codes(value)]


def _made(cls: type[Struct], /, **fields: Any) -> Struct:
    structures = _structures(cls)
    for name in structures.keys() & fields.keys():
        fields[name] = _value(structures[name], fields[name])
    return cls(**fields)


@cache
def _structures(cls: type[Struct]) -> dict[str, type[Struct]]:
    """The fields that hold structures, or arrays of them."""
    found = {name: field_type(cls, name)[2] for name in cls.SPECS}
    return {name: struct for name, struct in found.items() if struct is not None}


def _value(struct: type[Struct], value: Any) -> Any:
    if isinstance(value, dict):
        return _made(struct, **value)
    return [_value(struct, each) for each in value] if isinstance(value, list | tuple) else value
