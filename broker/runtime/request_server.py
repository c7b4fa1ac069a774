"""The interface between the data plane's connections, with TLS and SASL, and the process that
serves them (broker/server.py), which is passed to the broker.
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
    """The loop's methods that every connection uses."""

    @property
    def call_soon(self) -> Callable[..., Any]:
        """Call in the next turn."""

    @property
    def add_writer(self) -> Callable[..., Any]:
        """Call when a descriptor can be written to."""

    @property
    def remove_writer(self) -> Callable[..., Any]:
        """Stop that."""


class Doorkeeper(LoopCalls, Protocol):
    """Admission of connections, and reports when they close."""

    def admit(self, connection: Connection) -> str | None:
        """The reason to refuse a new connection, or None."""

    def lost(self, connection: Connection) -> None:
        """A connection was closed."""

    def closing(self, connection: Connection, reason: str) -> None:
        """Report why a connection is closed."""

    def failed(self, connection: Connection, problem: Exception) -> None:
        """A request could not be handled."""


class RequestServer(Doorkeeper, Protocol):
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
        """The answer's body; None for no answer; or what `park` waits for."""

    async def loaded(self, api_key: int) -> None:
        """Wait until the modules that serve an API are loaded, for callers that reach its handler
        in another way.
        """

    def park(self, later: Any, slot: Slot) -> None:
        """Complete the slot when the response is available."""

    def answer_when_durable(self, appended: list[tuple[Log, int]], slot: Slot, body: bytes) -> None:
        """Complete the slot when the data that it acknowledges is on the disk."""
