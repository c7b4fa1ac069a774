"""Serializers and deserializers with confluent-kafka's API: callables of a value and a
SerializationContext. The serializers of its schema registry client also work.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Any

from kstore.clients.compat.confluent.error import KafkaException, SerializationError

__all__ = [
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "KafkaException",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
]


class MessageField(StrEnum):
    """The part of a message."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The topic, and the part of the message that is serialized."""

    def __init__(self, topic: str | None, field: str, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class Serializer:
    """Converts an object to bytes."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """The bytes; None for None. Raises SerializationError for an invalid object."""
        raise NotImplementedError


class Deserializer:
    """Converts bytes to an object."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """The object; None for None. Raises SerializationError for invalid bytes."""
        raise NotImplementedError


class _Packer(Serializer):
    form = ""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """See Serializer."""
        if obj is None:
            return None
        try:
            return struct.pack(self.form, obj)
        except struct.error as error:
            raise SerializationError(str(error)) from error


class _Unpacker(Deserializer):
    form = ""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """See Deserializer."""
        if value is None:
            return None
        try:
            return struct.unpack(self.form, value)[0]
        except struct.error as error:
            raise SerializationError(str(error)) from error


class DoubleSerializer(_Packer):
    """A float as 8 bytes, big endian."""

    form = ">d"


class DoubleDeserializer(_Unpacker):
    """A float from 8 bytes."""

    form = ">d"


class IntegerSerializer(_Packer):
    """An int as 4 bytes, big endian."""

    form = ">i"


class IntegerDeserializer(_Unpacker):
    """An int from 4 bytes."""

    form = ">i"


class StringSerializer(Serializer):
    """Text to bytes, by default UTF-8."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """See Serializer."""
        if obj is None:
            return None
        try:
            encoded: bytes = obj.encode(self.codec)
        except (AttributeError, UnicodeEncodeError) as error:
            raise SerializationError(str(error)) from error
        return encoded


class StringDeserializer(Deserializer):
    """Bytes to text, by default UTF-8."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """See Deserializer."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeDecodeError as error:
            raise SerializationError(str(error)) from error
