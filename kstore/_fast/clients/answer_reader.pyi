"""The read buffer of a client's socket. A large response is read into the bytes object that it
becomes, so its records are not copied.
"""

from typing import Self

class AnswerReader:
    """A writable buffer (a small one, or the rest of a large frame). It is filled from its
    beginning, then `received` is called with the number of bytes; after that the buffer is another
    one.
    """

    def __new__(cls, max_frame_bytes: int = 104857600) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def received(self, size: int) -> list[bytes]:
        """Accept that many bytes; returns the frames that are now complete, without their lengths.

        Raises ProtocolError for an impossible length: the stream is then unusable, and every later
        call raises too.
        """
