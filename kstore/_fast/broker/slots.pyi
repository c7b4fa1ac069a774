"""The place of a parked response in the order of its connection; see slots.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition_events import Waiter
from kstore._fast.broker.replica_state import ReplicationContext
from kstore._fast.protocol.wire import AnswerBuffer
from kstore._fast.record.unpack import Verdict

class AnswerSink:
    """The target of responses: one per connection."""

    verdicts: dict[int, Verdict]
    @property
    def extended(self) -> bool:
        """Whether the client wants kstore's tagged fields in responses."""

class Slot(Waiter):
    """The place of a request that is answered later."""

    def complete(self, body: bytes | None) -> int:
        """Set the body of the response (None: no response is sent) and send what is next in
        order.
        """

    def give_up(self) -> None:
        """No response is possible: close the connection, because its order is lost."""

    def open_large(self, size: int) -> AnswerBuffer:
        """A buffer for the body of a large response, of so many bytes, written in several turns of
        the loop; `close_large` sends it.
        """

    def close_large(self) -> None:
        """The large response is complete: send it when it is next in order, without a copy."""

class Gathering:
    """Slots that wait a moment for more data."""

    def __init__(self, call_later: Callable[..., Any]) -> None: ...
    def end_period(self) -> None:
        """End the wait of slots that have waited for a whole period."""

class SlotDeadlines:
    """Slots with a deadline, and one timer for all of them."""

    def __init__(
        self, context: ReplicationContext, call_later: Callable[..., Any] | None
    ) -> None: ...
    def slots(self) -> list[Slot]:
        """All waiting slots."""

    def end_waits(self) -> None:
        """Expire slots after their deadline, and set the timer for the next."""
