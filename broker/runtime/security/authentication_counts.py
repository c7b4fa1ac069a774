"""Counts successful and failed authentications by listener and mechanism, as Kafka does. The
metrics have them if a listener is not PLAINTEXT.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from kstore.broker.state.exposition import Family, Metrics, sample

__all__ = ["KINDS", "NO_MECHANISM", "TLS", "AuthenticationCounts", "Outcome"]

Outcome = Literal["successful", "failed"]
TLS = "SSL"
"""Stands for the mechanism of a TLS handshake and the check of its certificate."""
NO_MECHANISM = "none"
"""Stands for the mechanism of a client that has not chosen a supported one."""
KINDS = ("successful_authentication", "failed_authentication", "successful_reauthentication",
         "failed_reauthentication")  # fmt: skip


class AuthenticationCounts:
    """The counts of one broker. A client that disconnects before it has sent credentials is not
    counted. A client that the broker disconnects, because of a wrong request or a timeout, has
    failed.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)

    def begin(self, listener: str, mechanisms: Iterable[str]) -> None:
        """Show these mechanisms of a listener from the start, with count 0."""
        for mechanism in mechanisms:
            kinds = KINDS[:2] if mechanism == TLS else KINDS
            self._counts.update({(kind, listener, mechanism): 0 for kind in kinds})

    def add(self, outcome: Outcome, listener: str, mechanism: str, *, again: bool = False) -> None:
        """Count one authentication. ``again``: it renewed a session (KIP-368)."""
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
