"""Cuts a byte stream into Kafka's length-prefixed frames; it knows nothing of their content."""

class FrameSplitter:
    """Holds the bytes of an incomplete frame; never more than one frame's permitted size."""

    def __init__(self, max_frame_bytes: int = 104857600) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Add bytes; return the frames that are now complete, without their length prefix.

        Raises ProtocolError for a negative length or one above the limit: the stream is then lost,
        and every later call raises too.
        """

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of an incomplete frame."""

def frame_size(data: bytes | bytearray | memoryview, max_frame_bytes: int, offset: int = 0) -> int:
    """The size of the frame whose length prefix is at offset, or -1: fewer than 4 bytes are there.

    Raises ProtocolError for a negative length or one above the limit.
    """
