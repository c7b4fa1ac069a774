"""A parked answer's place in the order of its connection; see slots.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition_events import Waiter
from kstore._fast.broker.replica_state import ReplicationContext
from kstore._fast.protocol.wire import AnswerBuffer
from kstore._fast.record.unpack import Verdict

class AnswerSink:
    """Where answers go: one per connection."""

    verdicts: dict[int, Verdict]
    @property
    def extended(self) -> bool:
        """Whether who asks wants kstore's tagged fields in answers."""

class Slot(Waiter):
    """The place of one request that is answered later."""

    def complete(self, body: bytes | None) -> int:
        """Give the answer's body (None: no answer is sent) and send what is next in order."""

    def give_up(self) -> None:
        """No answer can be given: close the connection, as its order is lost."""

    def open_large(self, size: int) -> AnswerBuffer:
        """Where the body of a large answer, of so many bytes, is written in several turns of the
        loop; `close_large` sends it.
        """

    def close_large(self) -> None:
        """The large answer is complete: send it when it is next in order, without a copy."""

class SlotDeadlines:
    """Slots that wait until some time at the latest, and one timer for all of them."""

    def __init__(
        self, context: ReplicationContext, call_later: Callable[..., Any] | None
    ) -> None: ...
    def slots(self) -> list[Slot]:
        """All that wait."""

    def end_waits(self) -> None:
        """Tell those whose time is over, and set the timer for the next."""
