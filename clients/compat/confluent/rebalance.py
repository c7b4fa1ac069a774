"""The rebalance callbacks of a confluent-kafka consumer, as a listener of kstore's consumer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from kstore.clients.compat.confluent.model import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from kstore.clients.compat.confluent.stored import StoredOffsets
from kstore.clients.consumer import Consumer, RebalanceListener
from kstore.types import TopicPartition as Pair

__all__ = ["Callbacks"]

Call = Callable[[Any, list[TopicPartition]], object] | None


class Callbacks(RebalanceListener):
    """Calls on_assign, on_revoke and on_lost with the user's consumer. Inside on_assign, the user's
    assign() sets where to start.
    """

    def __init__(
        self,
        user: Any,
        consumer: Consumer,
        stored: StoredOffsets,
        forget: Callable[[Iterable[Pair]], None],
    ) -> None:
        self._user, self._consumer, self._stored, self._forget = user, consumer, stored, forget
        self._on_assign: Call = None
        self._on_revoke: Call = None
        self._on_lost: Call = None
        self.is_running = False
        """A callback runs during a rebalance."""
        self.raised: BaseException | None = None
        """The exception of a callback; poll() raises it."""

    def set(self, on_assign: Call, on_revoke: Call, on_lost: Call) -> None:
        """The callbacks of the last subscribe()."""
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost

    def assigned_by_user(self, given: Collection[TopicPartition]) -> bool:
        """Inside a callback: take the user's offsets. Returns False outside of one."""
        if not self.is_running:
            return False
        mine = set(self._consumer.assignment())
        for row in given:
            if row.pair not in mine:
                continue
            if row.offset == OFFSET_BEGINNING:
                self._consumer.seek_to_beginning(row.pair)
            elif row.offset == OFFSET_END:
                self._consumer.seek_to_end(row.pair)
            elif row.offset >= 0:
                self._consumer.seek(row.pair, row.offset)
        return True

    def _call(self, callback: Call, partitions: Collection[Pair]) -> None:
        if callback is None:
            return
        self.is_running = True
        try:
            callback(self._user, [TopicPartition(tp.topic, tp.partition) for tp in partitions])
        except BaseException as error:
            self.raised = error
            raise
        finally:
            self.is_running = False

    def on_partitions_assigned(self, assigned: Collection[Pair]) -> None:
        """See RebalanceListener."""
        self._call(self._on_assign, assigned)

    def on_partitions_revoked(self, revoked: Collection[Pair]) -> None:
        """See RebalanceListener."""
        if revoked:
            try:
                self._call(self._on_revoke, revoked)
            finally:
                self._stored.commit_at_end(revoked)
                self._forget(revoked)

    def on_partitions_lost(self, lost: Collection[Pair]) -> None:
        """See RebalanceListener."""
        if lost:
            self._forget(lost)
            self._call(self._on_lost or self._on_revoke, lost)
