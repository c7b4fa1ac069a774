"""Encodes Kafka protocol messages by plan. No message is known by name."""

from typing import Any

from kstore._fast.protocol.plan import Plan
from kstore._fast.protocol.wire import AnswerBuffer

def encode(plan: Plan, message: Any) -> bytes:
    """The message's bytes. Raises ProtocolError for values that the version cannot carry."""

def encode_frame(plan: Plan, message: Any, header_plan: Plan, header: Any) -> bytes:
    """Length prefix, header and message as one buffer, ready for a socket."""

def encode_pieces(plan: Plan, message: Any, header_plan: Plan, header: Any) -> list[Any]:
    """As encode_frame, in pieces to be written one after the other: large records fields stand
    among them as the objects that they are, and are not copied.
    """

class Encoding:
    """One large message, encoded in steps: whoever holds the event loop gives others their turn
    between them. Nobody changes the message meanwhile.
    """

    def __init__(self, plan: Plan, message: Any) -> None: ...
    def step(self, elements: int) -> bool:
        """Encode about so many more elements; whether the message is whole. Raises ProtocolError as
        `encode` does.
        """

    def result(self) -> bytes:
        """The message's bytes, once `step` has said that they are all there."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    def move(self, buffer: AnswerBuffer, most: int) -> bool:
        """Append the next bytes of the message, so many at most, to an answer; whether it has all
        of them.
        """
