"""The interface to a broker's membership in its cluster, and the membership of a single broker.

Other parts do not check whether a broker is single; they use this interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kstore.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.controller import Controller
    from kstore.broker.state.work import Work
    from kstore.protocol.schema import Message

__all__ = ["Membership", "StandaloneMembership"]

ALONE_EPOCH = 1
"""The controller epoch of a single broker."""


class Membership(Protocol):
    """One broker's membership, from `start` to `close`."""

    @property
    def broker_epoch(self) -> int:
        """The czxid of this broker's registration. Without a registration, it is larger than every
        earlier one, so that requests for an earlier registration are refused.
        """

    @property
    def controller_id(self) -> int:
        """The controller's broker id. -1 while it is not known."""

    @property
    def controller_epoch(self) -> int:
        """The epoch of the last known controller."""

    @property
    def controller(self) -> Controller | None:
        """The controller of the cluster, if this broker is the controller. None on a single
        broker.
        """

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, or a single broker."""

    @property
    def joined(self) -> bool:
        """Whether this broker knows the cluster."""

    async def wait_joined(self) -> None:
        """Wait until the broker has joined."""

    async def start(self) -> None:
        """Join the cluster. Raises StoreError if that fails."""

    async def close(self) -> None:
        """Leave the cluster."""

    def suspect(self, node_id: int) -> None:
        """Called when a connection to a broker has ended."""

    def may_answer_alone(self) -> bool:
        """Whether this broker may answer without asking others: no other broker can have been
        elected in the meantime.
        """

    def sees_the_store(self) -> bool:
        """Whether this broker reaches the coordination store. "No" is a promise: see outage.py."""

    def reachable(self, listener: str) -> set[int] | None:
        """The brokers with an endpoint on a client's listener. None if this is the only broker."""

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the cluster."""

    async def ask_controller(self, request: Message, timeout_s: float) -> Any:
        """The controller's response. Raises KafkaError if there is none."""


class StandaloneMembership:
    """The membership of a single broker."""

    controller = None
    controller_epoch = ALONE_EPOCH
    is_controller = True
    joined = True

    def __init__(self, node_id: int, broker_epoch: int) -> None:
        self.controller_id = node_id
        self.broker_epoch = broker_epoch

    async def wait_joined(self) -> None:
        """Nothing to wait for."""

    async def start(self) -> None:
        """Nothing to join."""

    async def close(self) -> None:
        """Nothing to leave."""

    def suspect(self, node_id: int) -> None:
        """There is no other broker."""

    def may_answer_alone(self) -> bool:
        """Always: no other broker can be elected."""
        return True

    def sees_the_store(self) -> bool:
        """No other broker shares this store."""
        return False

    def reachable(self, listener: str) -> set[int] | None:
        """None: this is the only broker."""
        return None

    def gauges(self) -> Work[dict[str, int]]:
        """Empty."""
        yield from ()
        return {}

    async def ask_controller(self, request: Message, timeout_s: float) -> Any:
        """Always an error: there is no controller."""
        raise error_for(ErrorCode.NOT_CONTROLLER, "this broker is alone: it asks no other")
