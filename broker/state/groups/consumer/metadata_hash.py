"""A 64-bit hash of the topics that a group subscribes to. If it changes, a new assignment is
computed.

Every join and departure computes it, so the contribution of a topic is cached until its partitions
change. For 10,000 partitions, the computation would block the loop for 10 ms each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TypeAlias
from uuid import UUID

from kstore.broker.state.bounded_cache import BoundedCache
from kstore.broker.state.metadata.image import MetadataImage, PartitionImage, TopicImage

__all__ = ["metadata_hash"]

MAX_REMEMBERED_BYTES = 16 << 20
ENTRY_BYTES = 400
"""The size of an entry without its text."""
Racks: TypeAlias = Mapping[int, str]
"""The racks of brokers, by node id."""
_REMEMBERED: BoundedCache[tuple[UUID, str], tuple[tuple[PartitionImage, ...], Racks, bytes]]
_REMEMBERED = BoundedCache(MAX_REMEMBERED_BYTES)
"""Cached contributions of topics, and what they were computed from. Results do not depend on the
cache.
"""


def metadata_hash(image: MetadataImage, names: Iterable[str]) -> int:
    """The hash of the ids, names and racks of the topics. 0 without topics."""
    digest = blake2b(digest_size=8)
    found = False
    racks = {node_id: str(broker.rack) for node_id, broker in image.brokers.items()}
    texts: dict[tuple[int, ...], str] = {}
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None:
            found = True
            digest.update(_added(topic, racks, texts))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def _added(topic: TopicImage, racks: Racks, texts: dict[tuple[int, ...], str]) -> bytes:
    """The contribution of a topic. ``texts``: the racks of replicas, as far as they are known."""
    key = (topic.topic_id, topic.name)
    known = _REMEMBERED.get(key)
    if topic.hidden:  # rare and for one group, so not cached
        hidden = f"{sorted(topic.hidden)}".encode()
        return _added(topic._replace(hidden=frozenset()), racks, texts) + hidden
    if known is not None and known[0] is topic.partitions and known[1] == racks:
        return known[2]
    of_partitions = []
    for partition in topic.partitions:
        replicas = partition.replicas
        text = texts.get(replicas)
        if text is None:
            text = texts[replicas] = str(
                sorted({racks[node] for node in replicas if node in racks})
            )
        of_partitions.append(text)
    added = f"{topic.topic_id}:{topic.name}:[{', '.join(of_partitions)}];".encode()
    _REMEMBERED.put(key, (topic.partitions, racks, added), ENTRY_BYTES + len(added))
    return added
