"""Modules that a broker of a cluster does not need to start, but needs soon after. A thread imports
them once the broker is ready. On the loop, the import would delay the first replica or an election,
which clients wait for.
"""

from __future__ import annotations

__all__ = ["SOON_NEEDED"]

SOON_NEEDED = (
    "kstore.errors.group_errors",
    "kstore.broker.runtime.controller.controller",
    "kstore.broker.runtime.peers.peers",
    "kstore.broker.runtime.replication.fetchers",
    "kstore.broker.runtime.replication.replica_throttles",
    "encodings.idna",  # to connect to another broker by its name
)
