"""Differences in logs and log dirs."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "Tiered storage (KIP-405)",
        "Served, with a plug-in.",
        "Not served. `remote.log.storage.system.enable=true` and `remote.storage.enable=true` are "
        "refused, the second as by a Kafka without tiered storage.",
        "Not built yet.",
    ),
    Difference(
        "A replica that cannot be opened",
        "Its log dir goes offline.",
        "The replica alone is offline until the broker starts again.",
        "The other replicas of the log dir can be read.",
    ),
    Difference(
        "A failed log dir that has the coordination store of a broker that runs alone",
        "The broker stops when the log dir with the metadata fails.",
        "The other log dirs are served. Topics and settings cannot be changed, and the next start "
        "needs the log dir.",
        "Clients can still read and write.",
    ),
    Difference(
        "Moving a partition between log dirs, when all records at the end of its log are deleted",
        "Moves it.",
        "The partition stays where it is, and the log says so.",
        "Not built yet.",
    ),
)
