"""How often clients have shown who they are, and how often not: Kafka's counters of that, by
listener and mechanism. Told with the other metrics (metrics.py), where a listener is not PLAINTEXT.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from kstore.broker.state.exposition import Family, Metrics, sample

__all__ = ["KINDS", "NO_MECHANISM", "TLS", "AuthenticationCounts", "Outcome"]

Outcome = Literal["successful", "failed"]
TLS = "SSL"
"""In the place of a mechanism: the handshake of TLS, and what its certificate says."""
NO_MECHANISM = "none"
"""The connection has ended before the client has chosen one that there is."""
KINDS = ("successful_authentication", "failed_authentication", "successful_reauthentication",
         "failed_reauthentication")  # fmt: skip


class AuthenticationCounts:
    """Of one broker. A client that goes away by itself before it has shown anything is not counted;
    one that the broker closes, for a wrong word or because it takes too long, has failed.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)

    def begin(self, listener: str, mechanisms: Iterable[str]) -> None:
        """Tell of these from the first, though nothing is counted yet."""
        for mechanism in mechanisms:
            kinds = KINDS[:2] if mechanism == TLS else KINDS
            self._counts.update({(kind, listener, mechanism): 0 for kind in kinds})

    def add(self, outcome: Outcome, listener: str, mechanism: str, *, again: bool = False) -> None:
        """One more. ``again``: in a session that has begun (KIP-368)."""
        kind = f"{outcome}_{'re' if again else ''}authentication"
        self._counts[kind, listener, mechanism or NO_MECHANISM] += 1

    def by_listener(self) -> dict[tuple[str, str], int]:
        """(Kind, listener) to the number of all mechanisms together."""
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
