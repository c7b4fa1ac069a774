"""Where a client's socket reads to. A large answer is read into the bytes object that it becomes,
so its records are never copied.
"""

from typing import Self

class AnswerReader:
    """A writable buffer (a small one, or the rest of a large frame): it is filled from its
    beginning, then `received` is told how far, after which it is another place.
    """

    def __new__(cls, max_frame_bytes: int = 104857600) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def received(self, size: int) -> list[bytes]:
        """Take that many bytes; return the frames that are now complete, without their lengths.

        Raises ProtocolError for an impossible length: the stream is then lost, and every later call
        raises too.
        """
