"""How a broker of a cluster continues while it cannot reach the coordination store. It acts on what
it knows, as long as no other broker can have been elected in the meantime.

An ensemble without a majority ends no sessions and allows no elections, so its brokers can
continue. A broker that is cut off from an ensemble with a majority loses its session, and others
are elected. To distinguish the two cases, the broker asks the other brokers (BrokerHeartbeat). A
broker that reaches the store says so. A broker that does not reach it promises to start no election
for a while. As long as all other running brokers have promised, a broker whose session may be over
knows that it is still leader.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.controller.broker_requests import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers

__all__ = ["Outage"]

log = logging.getLogger("kstore.broker")
PAUSE = 1 / 12
"""How often the other brokers are asked, and how long each may take, as a share of the session's
timeout.
"""
PROMISE = 1 / 4
"""How long a promise is valid, as a share of the session's timeout."""


class StoreView(Enum):
    """Another broker's answer about the store."""

    SEES = "sees it"
    PROMISES = "does not see it, and promises"
    GONE = "does not run"
    SILENT = "does not answer"


ANSWERS = {ErrorCode.NONE: StoreView.SEES, ErrorCode.BROKER_NOT_AVAILABLE: StoreView.PROMISES}


class LosableMembership(Protocol):
    """The membership that this broker may lose."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""

    def give_up(self, why: str) -> None:
        """Called when others may have been elected in the meantime."""


class Outage:
    """One broker's view of an unreachable store. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        peers: Lazy[Peers],
        membership: LosableMembership,
        session_s: float,
    ) -> None:
        """``session_s`` is how long a session lasts without contact to the store."""
        self._node = node
        self._store = store
        self._metadata = metadata
        self._peers = peers
        self._membership = membership
        self._session_s = session_s
        self._reported = False
        self._others_see = False
        self._sure_until = 0.0
        self._promised_until = 0.0
        self._asking: asyncio.Task[None] | None = None

    def note(self) -> None:
        """Called when the store becomes unreachable or reachable, or when the session may be
        over.
        """
        if self._store.over:
            return
        if not self._store.away:
            if self._reported:
                self._reported = False
                self._node.report("the coordination store answers again")
            return
        if not self._reported:
            self._reported = True
            self._node.report(
                "the coordination store can't be reached: this broker continues with what it knows"
            )
        if self._asking is None or self._asking.done():
            self._asking = self._node.loop.create_task(self._ask_all())
        self._judge()

    def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()

    @property
    def sure(self) -> bool:
        """Whether no other broker can have been elected in the meantime."""
        return not self._store.in_doubt or self._node.loop.time() < self._sure_until

    # ---- answers to others ----

    def sees_the_store(self) -> bool:
        """Whether this broker reaches the store. "No" is a promise to start no election for a
        while: see `keep_promise`.
        """
        if not (self._store.away or self._store.over):
            return True
        self._promised_until = self._node.loop.time() + self._session_s * PROMISE
        return False

    async def keep_promise(self) -> None:
        """Call this before an election. Waits until this broker's promises have expired."""
        while (left_s := self._promised_until - self._node.loop.time()) > 0:
            await asyncio.sleep(left_s)

    # ---- asking ----

    async def _ask_all(self) -> None:
        """Ask all other brokers repeatedly, until the store is back or this broker gives its
        session up.
        """
        self._others_see, self._sure_until = False, 0.0
        while self._store.away and not self._store.over:
            begin = self._node.loop.time()
            others = [each for each in self._metadata.image.brokers if each != self._node.node_id]
            found = await asyncio.gather(*map(self._ask, others))
            self._others_see = StoreView.SEES in found
            if all(view in (StoreView.PROMISES, StoreView.GONE) for view in found):
                self._sure_until = begin + self._session_s * PROMISE
            self._judge()
            await asyncio.sleep(self._session_s * PAUSE)

    async def _ask(self, node_id: int) -> StoreView:
        request = BrokerHeartbeatRequest(
            broker_id=self._node.node_id, broker_epoch=self._membership.broker_epoch
        )
        try:
            response: Any = await self._peers().ask(node_id, request, self._session_s * PAUSE)
        except KafkaError as problem:
            if isinstance(problem.__cause__, ConnectionRefusedError):
                return StoreView.GONE
            log.debug("broker %d does not say if it can reach the store: %s", node_id, problem)
            return StoreView.SILENT
        return ANSWERS.get(response.error_code, StoreView.SILENT)

    def _judge(self) -> None:
        if self._others_see and not self.sure:
            self._membership.give_up(
                "other brokers reach the coordination store and this one does not: its session may "
                "be over, and it stops leading"
            )
