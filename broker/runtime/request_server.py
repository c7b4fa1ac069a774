"""The interface that the data plane's connections, TLS and SASL use. broker/server.py implements it
and is passed to the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kstore._fast.broker.slots import Slot
    from kstore._fast.network.connection import Connection
    from kstore.log import Log

__all__ = ["ConnectionAdmission", "LoopCalls", "RequestServer"]


class LoopCalls(Protocol):
    """The loop's methods that every connection uses."""

    @property
    def call_soon(self) -> Callable[..., Any]:
        """Call in the next turn."""

    @property
    def add_writer(self) -> Callable[..., Any]:
        """Call when a descriptor can be written to."""

    @property
    def remove_writer(self) -> Callable[..., Any]:
        """Stop these calls."""


class ConnectionAdmission(LoopCalls, Protocol):
    """Admits connections, and reports when they close."""

    def admit(self, connection: Connection) -> str | None:
        """The reason to refuse a new connection, or None."""

    def lost(self, connection: Connection) -> None:
        """A connection was closed."""

    def closing(self, connection: Connection, reason: str) -> None:
        """Report why a connection is closed."""

    def failed(self, connection: Connection, problem: Exception) -> None:
        """A request could not be handled."""


class RequestServer(ConnectionAdmission, Protocol):
    """Answers the requests that the data plane does not."""

    @property
    def served_versions(self) -> Mapping[int, int]:
        """API key to the highest served version."""

    def dispatch(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes,
    ) -> Any:
        """The response's body, None for no response, or the object that `park` waits for."""

    async def loaded(self, api_key: int) -> None:
        """Wait until the modules that serve an API are loaded, for callers that do not go through
        `dispatch`.
        """

    def park(self, later: Any, slot: Slot) -> None:
        """Complete the slot when the response is available."""

    def answer_when_durable(self, appended: list[tuple[Log, int]], slot: Slot, body: bytes) -> None:
        """Complete the slot when the records that it acknowledges are on the disk."""
