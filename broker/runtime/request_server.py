"""What the data plane's connections, and TLS and SASL before them, ask of the process that serves
them (broker/server.py): the root of the broker is given one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kstore._fast.broker.slots import Slot
    from kstore._fast.network.connection import Connection
    from kstore.log import Log

__all__ = ["Doorkeeper", "LoopCalls", "RequestServer"]


class LoopCalls(Protocol):
    """The loop's, at hand for every connection."""

    @property
    def call_soon(self) -> Callable[..., Any]:
        """Call in the next turn."""

    @property
    def add_writer(self) -> Callable[..., Any]:
        """Call when a descriptor can be written to."""

    @property
    def remove_writer(self) -> Callable[..., Any]:
        """No more."""


class Doorkeeper(LoopCalls, Protocol):
    """Who may connect, and what is told of those that go."""

    def admit(self, connection: Connection) -> str | None:
        """Why a new connection may not stay; None if it may."""

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""

    def closing(self, connection: Connection, reason: str) -> None:
        """A connection is closed, and why."""

    def failed(self, connection: Connection, problem: Exception) -> None:
        """A request could not be handled."""


class RequestServer(Doorkeeper, Protocol):
    """Who answers what the data plane does not."""

    @property
    def served_versions(self) -> Mapping[int, int]:
        """API key to the highest version that is served."""

    def dispatch(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes,
    ) -> Any:
        """The answer's body; None for no answer; or what `park` is to wait for."""

    async def loaded(self, api_key: int) -> None:
        """Wait until the modules that answer an API's requests are loaded: for who comes to its
        handler on another way.
        """

    def park(self, later: Any, slot: Slot) -> None:
        """Complete the slot when the response is there."""

    def answer_when_durable(self, appended: list[tuple[Log, int]], slot: Slot, body: bytes) -> None:
        """Complete the slot when what it acknowledges is on the disk."""
