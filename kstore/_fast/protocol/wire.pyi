"""The answer buffer, a growing run of bytes that goes to a socket or a transport; see wire.pyx."""

from typing import Self

from typing_extensions import Buffer

class AnswerBuffer:
    """Bytes to be sent; the buffer protocol shows what the socket has not taken yet."""

    def __new__(cls, capacity: int = 512) -> Self: ...
    def write(self, data: Buffer) -> None:
        """Append the bytes of a buffer object."""

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
