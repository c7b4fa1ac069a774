"""Decodes Kafka protocol messages by plan. It has no code for any particular message."""

from typing import Any

from kstore._fast.protocol.plan import Plan

def decode_prefix(
    plan: Plan, buffer: bytes | bytearray | memoryview, offset: int = 0, max_elements: int = -1
) -> tuple[Any, int]:
    """Decode one message at offset; return it and the offset after it. Raises ProtocolError, also
    if its arrays have more than max_elements elements in all (-1: no limit).
    """

class Decoding:
    """One large message, decoded in steps, so that the event loop can do other work between
    them.
    """

    message: Any
    """Complete when `step` has returned True."""

    def __init__(self, plan: Plan, buffer: bytes, max_elements: int) -> None: ...
    def step(self, elements: int) -> bool:
        """Decode about that many more elements; returns whether the message is complete. Raises
        ProtocolError like `decode_prefix`.
        """
