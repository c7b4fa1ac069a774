"""Differences in logs and log dirs."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "Tiered storage (KIP-405)",
        "Supported with a plug-in.",
        "Not supported. `remote.log.storage.system.enable=true` and `remote.storage.enable=true` "
        "are refused, the second as in Kafka without tiered storage.",
        "Not built yet.",
    ),
    Difference(
        "A replica that cannot be opened",
        "Its log dir goes offline.",
        "Only the replica is offline, until the broker restarts.",
        "The other replicas of the log dir can be read.",
    ),
    Difference(
        "Failure of the log dir with the coordination store of a single broker",
        "The broker stops when the log dir with the metadata fails.",
        "The broker serves the other log dirs. Topics and settings cannot be changed, and the "
        "next start needs the failed log dir.",
        "Clients can still read and write.",
    ),
    Difference(
        "Moving a partition between log dirs, when all records at the end of its log are deleted",
        "Moves it.",
        "The partition is not moved, and the broker logs this.",
        "Not built yet.",
    ),
)
