"""The nodes of single partitions, and the number that tells them from all others: the partition
epoch (KIP-232).

`/partition_epoch` grows by one with every new partition and every deleted topic, in the same multi
that makes or deletes them: two brokers can't give out one number, and none is lost to a crash.
`/brokers/topics/T/partitions/P` holds the partition's own, and the leader epochs that the
partitions before it had when it was added (KIP-253).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.broker.coordination.store import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Op,
    Set,
)

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.state.metadata.image import PartitionImage

__all__ = [
    "PARTITION_EPOCH",
    "PartitionNode",
    "create_ops",
    "max_partition_epoch",
    "multi_with_epochs",
    "prepare_epochs",
    "read_node",
    "state_node",
]

PARTITION_EPOCH = "/partition_epoch"
TOPICS = "/brokers/topics"
UPGRADE_CHUNK = 200
"""So many nodes per multi: an ensemble refuses requests of more than a megabyte."""


class PartitionNode(NamedTuple):
    """What a partition's own node says."""

    partition_epoch: int
    prior_leader_epochs: tuple[tuple[int, int], ...] = ()
    """(partition, its leader epoch) of those that were there when this one was added."""


def max_partition_epoch(store: Store) -> int:
    """The last partition epoch that was given out."""
    return _read_epoch(store)[0]


def multi_with_epochs(store: Store, count: int, ops_from: Callable[[int], Sequence[Op]]) -> int:
    """Do the operations that ``ops_from(first)`` gives, with ``count`` new partition epochs from
    ``first`` on, all or nothing; returns the last of them.

    Tried again when another broker has taken the numbers meanwhile; a BadVersionError is about an
    operation of the caller's.
    """
    while True:
        last, version = _read_epoch(store)
        claim = Set(PARTITION_EPOCH, _epoch_node(last + count), version)
        try:
            store.multi([claim, *ops_from(last + 1)])
        except BadVersionError as error:
            if error.op_index != 0:
                raise
        else:
            return last + count


def create_ops(folder: str, partition: PartitionImage, controller_epoch: int) -> list[Op]:
    """Make the nodes of a partition in its folder."""
    node: dict[str, Any] = {
        "version": 1,
        "partition_epoch": partition.partition_epoch,
        "prior_leader_epochs": {str(p): epoch for p, epoch in partition.prior_leader_epochs},
    }
    return [
        Create(folder, _json(node)),
        Create(f"{folder}/state", state_node(partition, controller_epoch)),
    ]


def state_node(partition: PartitionImage, controller_epoch: int) -> bytes:
    """A partition's leader and in-sync replicas, as Kafka writes them."""
    return _json(
        {
            "controller_epoch": controller_epoch,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": list(partition.isr),
        }
    )


def read_node(store: Store, topic: str, index: int) -> PartitionNode | None:
    """A partition's own node, or None where there is none (yet)."""
    try:
        data, _ = store.get(f"{TOPICS}/{topic}/partitions/{index}")
    except NoNodeError:
        return None
    node = json.loads(data)
    priors = node.get("prior_leader_epochs", {})
    return PartitionNode(
        node["partition_epoch"], tuple((int(name), epoch) for name, epoch in priors.items())
    )


def prepare_epochs(store: Store) -> None:
    """Give every partition of a store that knew no partition epochs one; nothing where they have
    theirs.
    """
    while not store.exists(PARTITION_EPOCH):
        found = list(_old_nodes(store))
        last = max((epoch for _, _, epoch in found if epoch is not None), default=0)
        ops: list[Op] = []
        for path, version, epoch in found:
            if epoch is None:
                last += 1
                node = {"version": 1, "partition_epoch": last, "prior_leader_epochs": {}}
                ops.append(Set(path, _json(node), version))
        try:
            for first in range(0, len(ops), UPGRADE_CHUNK):
                store.multi(ops[first : first + UPGRADE_CHUNK])
            store.create(PARTITION_EPOCH, _epoch_node(last))
        except (BadVersionError, NodeExistsError):
            continue  # another broker does the same: see how far it is


def _old_nodes(store: Store) -> Iterator[tuple[str, int, int | None]]:
    """Path, version and epoch of every partition's node, always in the same order: brokers that do
    this at one time give the same numbers.
    """
    for topic in sorted(store.children(TOPICS)):
        folder = f"{TOPICS}/{topic}/partitions"
        try:
            indexes = sorted(int(name) for name in store.children(folder))
        except NoNodeError:
            continue
        for index in indexes:
            path = f"{folder}/{index}"
            data, version = store.get(path)
            yield path, version, json.loads(data)["partition_epoch"] if data else None


def _read_epoch(store: Store) -> tuple[int, int]:
    data, version = store.get(PARTITION_EPOCH)
    return json.loads(data)["partition_epoch"], version


def _epoch_node(epoch: int) -> bytes:
    return _json({"version": 1, "partition_epoch": epoch})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
