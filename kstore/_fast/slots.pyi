"""A parked answer's place in the order of its connection; see slots.pyx."""

from kstore._fast.partition_table import Waiter
from kstore._fast.unpack import Verdict

class AnswerSink:
    """Where answers go: one per connection."""

    verdicts: dict[int, Verdict]

class Slot(Waiter):
    """The place of one request that is answered later."""

    def complete(self, body: bytes | None) -> int:
        """Give the answer's body (None: no answer is sent) and send what is next in order."""

    def give_up(self) -> None:
        """No answer can be given: close the connection, as its order is lost."""
