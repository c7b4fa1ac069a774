"""The answer buffer: growing memory that is sent to a socket or a transport; see wire.pyx."""

from typing import Self

from typing_extensions import Buffer

class AnswerBuffer:
    """Bytes to send; the buffer protocol exports those that the socket has not accepted yet."""

    def __new__(cls, capacity: int = 512) -> Self: ...
    def write(self, data: Buffer) -> None:
        """Append the bytes of a buffer object."""

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
