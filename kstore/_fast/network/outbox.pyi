"""A connection's answers on their way out; see outbox.pyx."""

from kstore._fast.broker.slots import AnswerSink

class Outbox(AnswerSink):
    """The way out of one connection's answers."""

    peer: str
    @property
    def is_closed(self) -> bool:
        """Whether nothing more is answered."""

    def end_waits(self) -> None:
        """The session of who asks has ended: what waits for data is answered with what there is."""

    def close(self) -> None:
        """Close after what is written has been sent."""

    def drain(self) -> None:
        """Send the answers that are complete and next in order; go on with what had to wait."""

    def write_more(self) -> None:
        """The socket takes more: send what was kept, then go on with the requests."""

    def write_on(self) -> None:
        """What comes next is in memory, or could not be read in: go on when the socket can."""

    def lose(self, outcome: int) -> None:
        """The answers cannot be ended: drop the connection; nothing of it is sent any more."""
