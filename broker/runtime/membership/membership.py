"""A broker's place among the brokers of its cluster, and that of a broker that is alone.

Whether a broker is alone is no question that other parts ask: they ask what follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kstore.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.controller import Controller
    from kstore.broker.state.work import Work
    from kstore.protocol.schema import Message

__all__ = ["Alone", "Membership"]

ALONE_EPOCH = 1
"""The controller epoch of a broker that is alone."""


class Membership(Protocol):
    """One broker's place in its cluster, from `start` to `close`."""

    @property
    def broker_epoch(self) -> int:
        """The czxid of this broker's registration; while it has none, larger than every earlier
        one: what is meant for an earlier life is refused.
        """

    @property
    def controller_id(self) -> int:
        """The broker that is the controller; -1 while none is known."""

    @property
    def controller_epoch(self) -> int:
        """That of the controller which was seen last."""

    @property
    def controller(self) -> Controller | None:
        """The controller of the cluster, while this broker is it; None where there is no other
        broker to control.
        """

    @property
    def is_controller(self) -> bool:
        """Whether this broker itself does what only the controller may do."""

    @property
    def joined(self) -> bool:
        """Whether this broker knows the cluster."""

    async def wait_joined(self) -> None:
        """Wait until it does."""

    async def start(self) -> None:
        """Take the place; StoreError where it can't be had."""

    async def close(self) -> None:
        """Leave it."""

    def suspect(self, node_id: int) -> None:
        """A connection to a broker has ended."""

    def may_answer_alone(self) -> bool:
        """Whether this broker may answer by what it alone knows: nobody can have been elected in
        its place.
        """

    def sees_the_store(self) -> bool:
        """Whether this broker sees the coordination store. "No" is a promise: see outage.py."""

    def reachable(self, listener: str) -> set[int] | None:
        """The brokers with an endpoint on a client's listener; None where there is but this one."""

    def gauges(self) -> Work[dict[str, int]]:
        """What metrics tell of the cluster."""

    async def ask_controller(self, request: Message, timeout_s: float) -> Any:
        """What the controller answers; KafkaError without an answer."""


class Alone:
    """The place of the only broker there is."""

    controller = None
    controller_epoch = ALONE_EPOCH
    is_controller = True
    joined = True

    def __init__(self, node_id: int, broker_epoch: int) -> None:
        self.controller_id = node_id
        self.broker_epoch = broker_epoch

    async def wait_joined(self) -> None:
        """It knows all there is."""

    async def start(self) -> None:
        """It has its place."""

    async def close(self) -> None:
        """Nobody is told."""

    def suspect(self, node_id: int) -> None:
        """There is no other broker."""

    def may_answer_alone(self) -> bool:
        """Nobody else can be elected."""
        return True

    def sees_the_store(self) -> bool:
        """No other broker shares this store."""
        return False

    def reachable(self, listener: str) -> set[int] | None:
        """There is but this one."""
        return None

    def gauges(self) -> Work[dict[str, int]]:
        """There is no cluster to tell of."""
        yield from ()
        return {}

    async def ask_controller(self, request: Message, timeout_s: float) -> Any:
        """There is none."""
        raise error_for(ErrorCode.NOT_CONTROLLER, "this broker is alone: it asks no other")
