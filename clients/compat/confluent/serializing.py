"""SerializingProducer and DeserializingConsumer: the clients with key and value serializers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstore.clients.compat.confluent.consumer import Consumer
from kstore.clients.compat.confluent.error import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from kstore.clients.compat.confluent.model import Message
from kstore.clients.compat.confluent.producer import Callback, Producer
from kstore.clients.compat.confluent.serialization import MessageField, SerializationContext

__all__ = ["DeserializingConsumer", "SerializingProducer"]

Convert = Callable[[Any, SerializationContext], Any] | None


class SerializingProducer(Producer):
    """A Producer whose settings have key.serializer and value.serializer."""

    def __init__(self, conf: dict[str, Any]) -> None:
        rest = dict(conf)
        self._key_serializer: Convert = rest.pop("key.serializer", None)
        self._value_serializer: Convert = rest.pop("value.serializer", None)
        super().__init__(rest)

    def produce(  # type: ignore[override]  # key and value change places, as there
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Callback = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """As Producer.produce, with objects. Raises KeySerializationError or
        ValueSerializationError.
        """
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(topic, value, key, partition, None, on_delivery, timestamp, context.headers)


class DeserializingConsumer(Consumer):
    """A Consumer whose settings have key.deserializer and value.deserializer. It raises errors and
    does not return messages with errors.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        rest = dict(conf)
        self._key_deserializer: Convert = rest.pop("key.deserializer", None)
        self._value_deserializer: Convert = rest.pop("value.deserializer", None)
        super().__init__(rest)

    def poll(self, timeout: float = -1) -> Message | None:
        """As Consumer.poll, with objects. Raises ConsumeError, KeyDeserializationError or
        ValueDeserializationError.
        """
        message = super().poll(timeout)
        return None if message is None else self._converted(message)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As Consumer.consume, with objects."""
        return [self._converted(message) for message in super().consume(num_messages, timeout)]

    def _converted(self, message: Message) -> Message:
        if message.error() is not None:
            raise ConsumeError(message.error(), message=message)
        context = SerializationContext(message.topic(), MessageField.VALUE, message.headers())
        value, key = message.value(), message.key()
        if self._value_deserializer is not None:
            try:
                value = self._value_deserializer(value, context)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        context.field = MessageField.KEY
        if self._key_deserializer is not None:
            try:
                key = self._key_deserializer(key, context)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        message.set_value(value)
        message.set_key(key)
        return message
