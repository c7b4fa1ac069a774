"""Cuts a byte stream into Kafka's length-prefixed frames; it does not know their content."""

class FrameSplitter:
    """Holds the bytes of an incomplete frame, never more than the limit of one frame."""

    def __init__(self, max_frame_bytes: int = 104857600) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Add bytes; return the frames that are now complete, without their length prefix.

        Raises ProtocolError for a negative length or one above the limit: the stream is then
        unusable, and every later call raises too.
        """

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of an incomplete frame."""

def frame_size(data: bytes | bytearray | memoryview, max_frame_bytes: int, offset: int = 0) -> int:
    """The size of the frame whose length prefix is at offset; -1 if there are fewer than 4 bytes.

    Raises ProtocolError for a negative length or one above the limit.
    """
