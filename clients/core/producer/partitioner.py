"""The partitioners, by name. The partition is chosen where records are appended
(kstore._fast.clients.accumulator).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from kstore._fast.record.murmur2 import jump_partition, murmur2

__all__ = ["Chooser", "ordered_partition", "partition_for_key", "partitioner_for", "preferences"]

Chooser = Callable[[str, Any, Any, int], int]
"""A user's partitioner: a function of topic, key, value and number of partitions."""

BY_MURMUR2, BY_STICKINESS, BY_JUMP_HASH = 0, 1, 2
_KINDS = {
    "murmur2": BY_MURMUR2,
    "default": BY_MURMUR2,
    "sticky": BY_STICKINESS,
    "ordered": BY_JUMP_HASH,
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": BY_STICKINESS,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": BY_MURMUR2,
}
_ROUND_ROBIN = {"roundrobin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"}


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key as in Kafka's Java client: murmur2, made positive, modulo."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def ordered_partition(key: bytes, partitions: int) -> int:
    """The partition of a key with `ordered`: when partitions are added, keys only move to new ones
    (jump consistent hash over murmur2).
    """
    return jump_partition(key, partitions)


def preferences(choices: Sequence[int], backlog: Sequence[int]) -> list[int] | None:
    """Running sums of the weights of the choices: the fewer batches wait for a partition, the
    larger its weight (KIP-794). None: all weights are equal.
    """
    waiting = [backlog[partition] for partition in choices]
    most = max(waiting, default=0)
    if not waiting or min(waiting) == most:
        return None
    return list(accumulate(most + 1 - each for each in waiting))


def partitioner_for(given: object, *, ignore_keys: bool = False) -> tuple[int, Chooser | None]:
    """The kind of partitioner, and the function that chooses if it is not a built-in kind.

    Raises ValueError for an unknown name.
    """
    if callable(given):
        return BY_MURMUR2, given
    if given is None:
        return BY_STICKINESS if ignore_keys else BY_MURMUR2, None
    name = str(given)
    if name.lower() in _ROUND_ROBIN or name in _ROUND_ROBIN:
        return BY_MURMUR2, _round_robin()
    kind = _KINDS.get(name, _KINDS.get(name.lower()))
    if kind is None:
        raise ValueError(
            f"partitioner.class {name!r} is unknown: use murmur2, sticky, ordered, roundrobin, or "
            "a function of topic, key, value and number of partitions"
        )
    return BY_STICKINESS if ignore_keys else kind, None


def _round_robin() -> Chooser:
    next_of: dict[str, int] = {}

    def choose(topic: str, key: Any, value: Any, partitions: int) -> int:
        turn = next_of.get(topic, 0)
        next_of[topic] = turn + 1
        return turn % partitions

    return choose
