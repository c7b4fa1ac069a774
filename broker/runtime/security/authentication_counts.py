"""Counts successful and failed authentications, as Kafka does, by listener and mechanism. They are
part of the metrics (broker/metrics) if a listener is not PLAINTEXT.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from kstore.broker.state.exposition import Family, Metrics, sample

__all__ = ["KINDS", "NO_MECHANISM", "TLS", "AuthenticationCounts", "Outcome"]

Outcome = Literal["successful", "failed"]
TLS = "SSL"
"""Stands for a mechanism: TLS's handshake, and the check of its certificate."""
NO_MECHANISM = "none"
"""The connection ended before the client chose a supported mechanism."""
KINDS = ("successful_authentication", "failed_authentication", "successful_reauthentication",
         "failed_reauthentication")  # fmt: skip


class AuthenticationCounts:
    """The counts of one broker. A client that disconnects before it has sent any credentials is not
    counted; one that the broker disconnects, for a wrong request or a timeout, has failed.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)

    def begin(self, listener: str, mechanisms: Iterable[str]) -> None:
        """Show these mechanisms of a listener from the start, with count 0."""
        for mechanism in mechanisms:
            kinds = KINDS[:2] if mechanism == TLS else KINDS
            self._counts.update({(kind, listener, mechanism): 0 for kind in kinds})

    def add(self, outcome: Outcome, listener: str, mechanism: str, *, again: bool = False) -> None:
        """Count one. ``again``: in a session that has begun (KIP-368)."""
        kind = f"{outcome}_{'re' if again else ''}authentication"
        self._counts[kind, listener, mechanism or NO_MECHANISM] += 1

    def by_listener(self) -> dict[tuple[str, str], int]:
        """(Kind, listener) to the total of all mechanisms."""
        found: dict[tuple[str, str], int] = {}
        for (kind, listener, _), count in self._counts.items():
            found[kind, listener] = found.get((kind, listener), 0) + count
        return found

    def metrics(self) -> Metrics:
        """All counts, by listener and mechanism."""
        for kind in KINDS:
            family = Family(
                f"kstore_{kind}_total", "counter",
                f"Number of times: {kind.replace('_', ' ')}, by listener and mechanism",
            )  # fmt: skip
            yield family
            for (found, listener, mechanism), count in sorted(self._counts.items()):
                if found == kind:
                    yield sample(family.name, count, listener=listener, mechanism=mechanism)
