"""The base class of all errors of Kafka's protocol, and the error for malformed bytes.

Subclassing KafkaError with a code adds a row to the table behind `kstore.errors.error_for`.
"""

from __future__ import annotations

from typing import ClassVar

from kstore.errors.codes import ErrorCode

__all__ = ["BY_CODE", "NAMES", "PRODUCE_BY_CODE", "KafkaError", "ProtocolError"]

NAMES: dict[int, str] = {
    code: name
    for name, code in vars(ErrorCode).items()
    if isinstance(code, int) and name != "INVALID_PRODUCE_OFFSET"
}
BY_CODE: dict[int, type[KafkaError]] = {}
PRODUCE_BY_CODE: dict[int, type[KafkaError]] = {}


class ProtocolError(ValueError):
    """Malformed bytes of a message, or a value that a message cannot contain."""


class KafkaError(Exception):
    """An error with a code of the Kafka protocol.

    `retriable`: the same request may succeed later. `refresh_metadata`: fetch metadata before
    retrying. `fatal`: the client cannot continue; create a new one.
    """

    code: ClassVar[int] = ErrorCode.UNKNOWN_SERVER_ERROR
    error_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    description: ClassVar[str] = ""
    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        code: int,
        retriable: bool = False,
        refresh_metadata: bool = False,
        fatal: bool = False,
        produce_only: bool = False,
        client_only: bool = False,
    ) -> None:
        """Register the row. produce_only: the code has this meaning only in a ProduceResponse.
        client_only: no row; a client raises it for several codes.
        """
        cls.code = code
        cls.error_name = "INVALID_PRODUCE_OFFSET" if produce_only else NAMES[code]
        cls.description = " ".join((cls.__doc__ or "").split())
        cls.retriable = retriable
        cls.refresh_metadata = refresh_metadata
        cls.fatal = fatal
        if not client_only:
            (PRODUCE_BY_CODE if produce_only else BY_CODE)[code] = cls

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.description)

    def __str__(self) -> str:
        return f"{self.error_name} ({self.code}): {self.args[0]}"
