"""The paths on which the requests of a connection are answered; see request_paths.pyx."""

from typing import Any

from kstore._fast.network.outbox import Outbox

class RequestPaths(Outbox):
    """How one connection's requests are answered."""

    listener: str
    client_host: str
    principal: str
    """Who asks: ``User:ANONYMOUS`` where nobody has to show it, or has yet."""
    quotas: Any
    """Who charges clients by their quotas (runtime/client_throttles.py); None while there are none.
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
        """Keep the body of an ApiVersions request, and what it asks for (`extended`); asked for
        once, it holds for the connection.
        """

    def hold(self) -> None:
        """For whoever is asked for an answer: have the request handled once more, after
        `admitted`, and none behind it before.
        """

    def note_denied(self, api_key: int, right: int, resource_type: int, name: bytes) -> None:
        """Have it logged that an operation, by its bit, was denied."""
