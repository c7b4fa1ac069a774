"""Decodes Kafka protocol messages by plan. No message is known by name."""

from typing import Any

from kstore._fast.protocol.plan import Plan

def decode_prefix(
    plan: Plan, buffer: bytes | bytearray | memoryview, offset: int = 0, max_elements: int = -1
) -> tuple[Any, int]:
    """Decode one message at offset; return it and the offset after it. Raises ProtocolError, also
    where its arrays have more than max_elements elements together (-1: no limit).
    """

class Decoding:
    """One large message, decoded in steps: whoever holds the event loop gives others their turn
    between them.
    """

    message: Any
    """Whole once `step` has said so."""

    def __init__(self, plan: Plan, buffer: bytes, max_elements: int) -> None: ...
    def step(self, elements: int) -> bool:
        """Decode about so many more elements; whether the message is whole. Raises ProtocolError as
        `decode_prefix` does.
        """
