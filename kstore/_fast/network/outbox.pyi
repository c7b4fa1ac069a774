"""A connection's outgoing answers; see outbox.pyx."""

from kstore._fast.broker.slots import AnswerSink

class Outbox(AnswerSink):
    """Sends the answers of one connection."""

    peer: str
    @property
    def is_closed(self) -> bool:
        """Whether no more answers are sent."""

    def end_waits(self) -> None:
        """The client's session has ended: answer waiting fetches with the data that exists."""

    def close(self) -> None:
        """Close after the written bytes are sent."""

    def drain(self) -> None:
        """Send the complete answers that are next in order; continue with what had to wait."""

    def write_more(self) -> None:
        """The socket accepts more: send the kept bytes, then continue with the requests."""

    def write_on(self) -> None:
        """The next data is in memory, or could not be read: continue when the socket is ready."""

    def lose(self, outcome: int) -> None:
        """The answers cannot be completed: drop the connection without sending more."""
