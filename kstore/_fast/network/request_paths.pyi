"""The paths that answer the requests of a connection; see request_paths.pyx."""

from typing import Any

from kstore._fast.network.outbox import Outbox

class RequestPaths(Outbox):
    """Answers the requests of one connection."""

    listener: str
    client_host: str
    principal: str
    """The client's principal: ``User:ANONYMOUS`` before or without authentication."""
    quotas: Any
    """Applies the quotas of clients (runtime/quotas/client_throttles.py); None while there are
    none.
    """
    client_id: bytes | None
    """Of the last request, while there are quotas."""
    @property
    def hello(self) -> bytes | None:
        """The body of the last ApiVersions request, which names the client's software."""

    @property
    def hello_version(self) -> int:
        """Its version."""

    def greet(self, body: bytes, version: int) -> None:
        """Keep the body of an ApiVersions request, and whether it asks for extensions
        (`extended`), which then apply to the connection until its end.
        """

    def hold(self) -> None:
        """Called by a handler: handle the request again after `admitted`, and no later request
        before it.
        """

    def note_denied(self, api_key: int, right: int, resource_type: int, name: bytes) -> None:
        """Log that an operation (its bit) was denied."""
