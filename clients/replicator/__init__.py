"""Copying topics from any Kafka to kstore with equal offsets (KIP-391).

`Replicator` is the whole; `copying` moves records, `topics` makes and configures topics, `groups`
takes committed offsets along. What is decided without I/O is in kstore.clients.core.replication.

May import: kstore.clients.core, kstore.clients.io, kstore.config.client, kstore.errors,
    kstore.protocol, kstore.record, kstore.types.
"""

from __future__ import annotations

from kstore.clients.replicator.options import Event, ReplicationError, ReplicationOptions
from kstore.clients.replicator.replicator import Progress, Replicator

__all__ = ["Event", "Progress", "ReplicationError", "ReplicationOptions", "Replicator"]
