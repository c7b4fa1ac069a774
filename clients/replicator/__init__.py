"""Copying topics from any Kafka to kstore with equal offsets (KIP-391).

`Replicator` is the entry point; `copying` copies records, `topics` creates and configures topics,
`groups` copies committed offsets. kstore.clients.core.replication decides without I/O. The pipeline
reads with `wire` and `blocking_fetches`, too.

May import: kstore._fast.clients, kstore.clients.core, kstore.clients.io, kstore.config.client,
    kstore.errors, kstore.protocol, kstore.record, kstore.types.
"""

from __future__ import annotations

from kstore.clients.replicator.options import Event, ReplicationError, ReplicationOptions
from kstore.clients.replicator.replicator import Progress, Replicator

__all__ = ["Event", "Progress", "ReplicationError", "ReplicationOptions", "Replicator"]
