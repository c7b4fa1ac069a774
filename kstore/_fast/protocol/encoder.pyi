"""Encodes Kafka protocol messages by plan. It has no code for any particular message."""

from typing import Any

from kstore._fast.protocol.plan import Plan
from kstore._fast.protocol.wire import AnswerBuffer

def encode(plan: Plan, message: Any) -> bytes:
    """The message's bytes. Raises ProtocolError for values that the version cannot have."""

def encode_frame(plan: Plan, message: Any, header_plan: Plan, header: Any) -> bytes:
    """Length prefix, header and message as one buffer, ready for a socket."""

def encode_pieces(plan: Plan, message: Any, header_plan: Plan, header: Any) -> list[Any]:
    """As encode_frame, in pieces to write one after the other: large records fields are pieces of
    their own and are not copied.
    """

class Encoding:
    """One large message, encoded in steps, so that the event loop can do other work between them.
    The message must not change meanwhile.
    """

    def __init__(self, plan: Plan, message: Any) -> None: ...
    def step(self, elements: int) -> bool:
        """Encode about that many more elements; returns whether the message is complete. Raises
        ProtocolError like `encode`.
        """

    def result(self) -> bytes:
        """The message's bytes, after `step` has returned True."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def move(self, buffer: AnswerBuffer, most: int) -> bool:
        """Append the next bytes of the message, up to that many, to an answer; returns whether it
        has all.
        """
