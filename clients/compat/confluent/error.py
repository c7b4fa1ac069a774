"""KafkaError and KafkaException with confluent-kafka's API, the conversion of kstore's errors, and
the exceptions of serializers and of DeserializingConsumer.
"""

from __future__ import annotations

from typing import Any

from kstore.clients.compat.confluent.error_codes import NAMES, ErrorCodes
from kstore.clients.core.consumer.inbox import CorruptRecordError
from kstore.clients.core.consumer.positions import LogTruncationError
from kstore.config.definition import ConfigError
from kstore.errors import ErrorCode, error_for
from kstore.errors import KafkaError as ProtocolKafkaError

__all__ = [
    "ConcurrentModificationException",
    "ConsumeError",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ProduceError",
    "SerializationError",
    "ThrottleEvent",
    "ValueDeserializationError",
    "ValueSerializationError",
    "error_of",
    "raised_as",
]


class KafkaError(ErrorCodes):
    """An error's code, text and kind: a value, not an exception. It equals its code."""

    __slots__ = ("_code", "_fatal", "_reason", "_requires_abort", "_retriable")

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = int(error)
        self._reason = _text(self._code) if reason is None else reason
        self._fatal, self._retriable = bool(fatal), bool(retriable)
        self._requires_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """The number: Kafka's, or, below -1, one of the client's own."""
        return self._code

    def name(self) -> str:
        """The constant's name."""
        return NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """What happened."""
        return self._reason

    def fatal(self) -> bool:
        """Whether the client has to be created again."""
        return self._fatal

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Whether the transaction has to be aborted."""
        return self._requires_abort

    def __repr__(self) -> Any:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._reason}"}}'

    __str__ = __repr__

    def __bool__(self) -> bool:
        return self._code != ErrorCode.NONE

    def __hash__(self) -> int:
        return hash(self._code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, KafkaError)) and self._code == _number(other)

    def __lt__(self, other: KafkaError | int) -> bool:
        return self._code < _number(other)

    def __le__(self, other: KafkaError | int) -> bool:
        return self._code <= _number(other)

    def __gt__(self, other: KafkaError | int) -> bool:
        return self._code > _number(other)

    def __ge__(self, other: KafkaError | int) -> bool:
        return self._code >= _number(other)

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = (self._fatal, self._retriable, self._requires_abort)
        return KafkaError, (self._code, self._reason, *kinds)


def _number(error: KafkaError | int) -> int:
    return error.code() if isinstance(error, KafkaError) else error


def _text(code: int) -> Any:
    if code < ErrorCode.UNKNOWN_SERVER_ERROR:
        return "Local: " + NAMES.get(code, f"_error {code}")[1:].replace("_", " ").lower()
    return "Success" if not code else f"Broker: {error_for(code).args[0]}"


class KafkaException(Exception):  # noqa: N818
    """Raised by calls that fail; ``args[0]`` is the KafkaError."""


class IllegalStateException(RuntimeError):  # noqa: N818
    """The call is not valid in the client's state."""


class ConcurrentModificationException(RuntimeError):  # noqa: N818
    """Two threads use a consumer at the same time."""


class SerializationError(KafkaException):
    """The argument of a serializer is not valid."""


class ThrottleEvent:
    """A broker throttled this client; the argument of throttle_cb."""

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        return (
            f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1e3)} ms"
        )


class _MessageException(KafkaException):
    """An exception about a message, with its cause."""

    code: int

    def __init__(
        self, error: Any, exception: BaseException | None = None, message: Any = None
    ) -> None:
        if exception is not None:
            error = KafkaError(self.code, str(exception))
            self.exception: BaseException | None = exception
        else:
            error = KafkaError(self.code, error) if isinstance(error, str) else error
            self.exception = None
        super().__init__(error)
        self.kafka_message = message

    @property
    def name(self) -> str:
        """The error's name."""
        name: str = self.args[0].name()
        return name


class ConsumeError(_MessageException):
    """A message could not be read: ``kafka_message`` has the known parts of it."""

    code = KafkaError.UNKNOWN

    @property
    def message(self) -> Any:
        """The message."""
        return self.kafka_message


class KeyDeserializationError(ConsumeError):
    """The key's deserializer raised."""

    code = KafkaError._KEY_DESERIALIZATION

    def __init__(self, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        super().__init__(self.code, exception, kafka_message)


class ValueDeserializationError(ConsumeError):
    """The value's deserializer raised."""

    code = KafkaError._VALUE_DESERIALIZATION

    def __init__(self, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        super().__init__(self.code, exception, kafka_message)


class ProduceError(_MessageException):
    """A message could not be produced."""

    code = KafkaError.UNKNOWN


class KeySerializationError(ProduceError):
    """The key's serializer raised."""

    code = KafkaError._KEY_SERIALIZATION

    def __init__(self, exception: BaseException | None = None) -> None:
        super().__init__(self.code, exception)


class ValueSerializationError(ProduceError):
    """The value's serializer raised."""

    code = KafkaError._VALUE_SERIALIZATION

    def __init__(self, exception: BaseException | None = None) -> None:
        super().__init__(self.code, exception)


_OWN_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (CorruptRecordError, KafkaError._BAD_MSG),
    (LogTruncationError, KafkaError._LOG_TRUNCATION),
    (ConfigError, KafkaError._INVALID_ARG),
    (TimeoutError, KafkaError._TIMED_OUT),
    (ValueError, KafkaError._INVALID_ARG),
    (RuntimeError, KafkaError._STATE),
)
_CLIENT_CODES = {
    ErrorCode.NETWORK_EXCEPTION: KafkaError._TRANSPORT,
    ErrorCode.REQUEST_TIMED_OUT: KafkaError._TIMED_OUT,
    ErrorCode.PRODUCER_FENCED: KafkaError._FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: KafkaError._FENCED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: KafkaError._AUTHENTICATION,
}
"""Errors that have librdkafka's own numbers."""


def error_of(error: BaseException, *, timed_out: int = KafkaError._TIMED_OUT) -> KafkaError:
    """Convert an exception of kstore's clients."""
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    if isinstance(error, ProtocolKafkaError):
        code = _CLIENT_CODES.get(error.code, error.code)
        if code == KafkaError._TIMED_OUT:
            code = timed_out
        return KafkaError(code, str(error.args[0]), error.fatal, error.retriable)
    for kind, code in _OWN_CODES:
        if isinstance(error, kind):
            own = timed_out if code == KafkaError._TIMED_OUT else code
            return KafkaError(own, str(error) or None)
    return KafkaError(KafkaError._FAIL, f"{type(error).__name__}: {error}")


def raised_as(error: BaseException) -> KafkaException:
    """The KafkaException to raise for an exception."""
    return error if isinstance(error, KafkaException) else KafkaException(error_of(error))
