"""The nodes of single partitions, and the number that identifies each of them: the partition epoch
(KIP-232).

`/partition_epoch` increases by one with every new partition and every deleted topic, in the same
multi that creates or deletes them. So two brokers cannot allocate the same number, and a crash
loses none. `/brokers/topics/T/partitions/P` has the partition's own epoch, and the leader epochs
that the other partitions had when it was added (KIP-253).
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
from kstore.broker.state.metadata.image import PartitionImage

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = [
    "PARTITION_EPOCH",
    "RECOVERING",
    "PartitionNode",
    "create_ops",
    "max_partition_epoch",
    "multi_with_epochs",
    "partition_node",
    "prepare_epochs",
    "read_node",
    "read_state",
    "state_node",
]

PARTITION_EPOCH = "/partition_epoch"
TOPICS = "/brokers/topics"
RECOVERING = 1
"""The `leader_recovery_state` of KIP-704; 0 is not written."""
UPGRADE_CHUNK = 200
"""The limit of nodes in one multi. An ensemble refuses requests of more than a megabyte."""


class PartitionNode(NamedTuple):
    """The contents of a partition's own node."""

    partition_epoch: int
    prior_leader_epochs: tuple[tuple[int, int], ...] = ()
    """(partition, its leader epoch) of the partitions that existed when this one was added."""


def max_partition_epoch(store: Store) -> int:
    """The last allocated partition epoch."""
    return _read_epoch(store)[0]


def multi_with_epochs(store: Store, count: int, ops_from: Callable[[int], Sequence[Op]]) -> int:
    """Execute the operations of ``ops_from(first)``, with ``count`` new partition epochs from
    ``first`` on, all or nothing. Returns the last epoch.

    This retries if another broker has taken the epochs meanwhile. A BadVersionError is about an
    operation of the caller.
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
    """Operations that create the nodes of a partition in its folder."""
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
    """A partition's leader and in-sync replicas in Kafka's format, with optional fields.

    If a partition has no ISR, its eligible leader replicas are also written as the ISR, so that a
    version without eligible leader replicas can elect them.
    """
    eligible = partition.elr or partition.last_known_elr
    node: dict[str, Any] = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr or eligible),
    }
    if eligible:
        node["elr"] = list(partition.elr)
        node["elr_min_isr"] = partition.elr_min_isr
        node["elr_writes"] = partition.elr_writes
        node["last_known_elr"] = list(partition.last_known_elr)
        node["isr_is_empty"] = not partition.isr
    if partition.recovering:
        node["leader_recovery_state"] = RECOVERING
    return _json(node)


def read_state(data: bytes, version: int, own: PartitionNode) -> PartitionImage:
    """Read a partition from its two nodes, without its replicas."""
    state = json.loads(data)
    return PartitionImage(
        state["leader"],
        state["leader_epoch"],
        (),
        () if state.get("isr_is_empty") else tuple(state["isr"]),
        own.partition_epoch,
        version,
        prior_leader_epochs=own.prior_leader_epochs,
        elr=tuple(state.get("elr", ())),
        last_known_elr=tuple(state.get("last_known_elr", ())),
        elr_min_isr=state.get("elr_min_isr", 0),
        elr_writes=state.get("elr_writes", 0),
        recovering=state.get("leader_recovery_state") == RECOVERING,
    )


def read_node(store: Store, topic: str, index: int) -> PartitionNode | None:
    """A partition's own node, or None if it does not exist (yet)."""
    try:
        data, _ = store.get(f"{TOPICS}/{topic}/partitions/{index}")
    except NoNodeError:
        return None
    return partition_node(data)


def partition_node(data: bytes) -> PartitionNode:
    """The contents of a partition's own node."""
    node = json.loads(data)
    priors = node.get("prior_leader_epochs", {})
    return PartitionNode(
        node["partition_epoch"], tuple((int(name), epoch) for name, epoch in priors.items())
    )


def prepare_epochs(store: Store) -> None:
    """Assign partition epochs to all partitions of an old store without them. Otherwise does
    nothing.
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
            continue  # another broker does the same: see what it has done


def _old_nodes(store: Store) -> Iterator[tuple[str, int, int | None]]:
    """Path, version and epoch of every partition's node. The order is always the same, so brokers
    that do this at the same time assign the same numbers.
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
