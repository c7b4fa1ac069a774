"""Serializers and deserializers of keys and values: functions of the user, or of a schema library,
that producers and consumers call.

A serializer gets the object, a deserializer the bytes. If its second parameter is named ctx or
context, it also gets a SerializationContext, as confluent-kafka's serializers do. It is not called
for None, which stays None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kstore.clients.producer_record import ProducerRecord
from kstore.config.definition import ConfigError

if TYPE_CHECKING:
    from kstore._fast.clients.fetched import ConsumerRecord
    from kstore.types import Header

__all__ = ["DeserializedRecord", "Deserializers", "SerializationContext", "Serializers"]

_NOT_MADE = object()
_CONTEXT_NAMES = {"ctx", "context"}
_Convert = Callable[[Any, str, Any], Any] | None


@dataclass(frozen=True, slots=True)
class SerializationContext:
    """The topic of a record, and the field that is serialized."""

    topic: str
    field: str
    """"key" or "value"."""
    headers: Any = None


class Serializers:
    """The key.serializer and value.serializer of a producer; false if there are none."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._key = _converter(settings, "key.serializer", "key")
        self._value = _converter(settings, "value.serializer", "value")

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Serialize a record's key and value. Exceptions of a serializer reach the caller
        of send.
        """
        key, value, topic = record.key, record.value, record.topic
        if self._key is not None and key is not None:
            key = self._key(key, topic, record.headers)
        if self._value is not None and value is not None:
            value = self._value(value, topic, record.headers)
        return replace(record, key=key, value=value)


class Deserializers:
    """The key.deserializer and value.deserializer of a consumer; false if there are none."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.key = _converter(settings, "key.deserializer", "key")
        self.value = _converter(settings, "value.deserializer", "value")

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def on_consume(self, records: list[ConsumerRecord]) -> list[Any]:
        """Wrap the records: their keys and values are deserialized when they are first accessed."""
        return [DeserializedRecord(record, self) for record in records]


class DeserializedRecord:
    """A ConsumerRecord whose key and value are objects. They are created when they are first
    accessed. A deserializer's error is raised there, and the record itself can still be used.
    """

    __slots__ = ("_by", "_key", "_value", "record")

    def __init__(self, record: ConsumerRecord, by: Deserializers) -> None:
        self.record = record
        """The record as it was read, with bytes."""
        self._by = by
        self._key: Any = _NOT_MADE
        self._value: Any = _NOT_MADE

    @property
    def key(self) -> Any:
        """The key as an object; None for a null key."""
        if self._key is _NOT_MADE:
            self._key = self._made(self._by.key, self.record.key)
        return self._key

    @property
    def value(self) -> Any:
        """The value as an object; None for a null value."""
        if self._value is _NOT_MADE:
            self._value = self._made(self._by.value, self.record.value)
        return self._value

    def _made(self, convert: _Convert, data: bytes | None) -> Any:
        if convert is None or data is None:
            return data
        return convert(data, self.record.topic, self.record.headers)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """In ms since 1970; -1 if there is none."""
        return self.record.timestamp

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime."""
        return self.record.timestamp_type

    @property
    def headers(self) -> tuple[Header, ...]:
        """The headers, in order."""
        return self.record.headers

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which the record was written; -1 if unknown."""
        return self.record.leader_epoch

    @property
    def key_size(self) -> int:
        """The size of the key in bytes; -1 if it is null."""
        return self.record.key_size

    @property
    def value_size(self) -> int:
        """The size of the value in bytes; -1 if it is null."""
        return self.record.value_size


def _converter(settings: Mapping[str, Any], name: str, field: str) -> _Convert:
    given = settings[name]
    is_java = isinstance(given, str) and (not given or "." in given)
    if given is None or is_java:  # the name of a Java class
        return None
    if not callable(given):
        raise ConfigError(f"{name} is {given!r}; it must be a callable", key=name)
    if _takes_context(given):
        return lambda data, topic, headers: given(data, SerializationContext(topic, field, headers))
    return lambda data, _topic, _headers: given(data)


def _takes_context(given: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(given).parameters)
    except ValueError:  # a type or C function without a signature
        return False
    return len(parameters) > 1 and parameters[1] in _CONTEXT_NAMES
