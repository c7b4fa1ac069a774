"""Hints that the data plane sends to clients: the endpoint of the leader (KIP-951), and the replica
in the consumer's rack (KIP-392).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.config import BrokerConfig

__all__ = ["give_hints"]

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only replica.selector.class that sends consumers to replicas other than the leader."""


def give_hints(config: BrokerConfig, table: PartitionTable, metadata: MetadataCache) -> None:
    """Let the data plane of this table take its hints from the current image."""

    def endpoint(node_id: int, listener: str) -> bytes | None:
        known = metadata.image.brokers.get(node_id)
        end = None if known is None else known.endpoint(listener)
        if known is None or end is None:
            return None
        where = _compact(end.host) + end.port.to_bytes(4, "big") + _compact(known.rack)
        return node_id.to_bytes(4, "big") + where + b"\0"

    table.node_endpoint = endpoint
    table.rack_aware = config["replica.selector.class"] == RACK_AWARE


def _compact(text: str | None) -> bytes:
    """A compact nullable string: preceded by its size plus one, as a varint."""
    data = b"" if text is None else text.encode()
    size = 0 if text is None else len(data) + 1
    head = bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + data
