"""Encodes and decodes Kafka protocol messages by plan. No message is known by name."""

from typing import Any

from kstore._fast.plan import Plan

def decode_prefix(
    plan: Plan, buffer: bytes | bytearray | memoryview, offset: int = 0
) -> tuple[Any, int]:
    """Decode one message at offset; return it and the offset after it. Raises ProtocolError."""

def encode(plan: Plan, message: Any) -> bytes:
    """The message's bytes. Raises ProtocolError for values that the version cannot carry."""

def encode_frame(plan: Plan, message: Any, header_plan: Plan, header: Any) -> bytes:
    """Length prefix, header and message as one buffer, ready for a socket."""

def encode_pieces(plan: Plan, message: Any, header_plan: Plan, header: Any) -> list[Any]:
    """As encode_frame, in pieces to be written one after the other: large records fields stand
    among them as the objects that they are, and are not copied.
    """
