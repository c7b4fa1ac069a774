"""`/admin/contractions/T`: the contraction of a topic (KIP-253).

The controller writes it, in one multi with the nodes that belong to it. All brokers read it. Groups
and consumers need to know which leader epochs ended when the last partitions retired.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kstore.broker.coordination.partition_nodes import TOPICS
from kstore.broker.coordination.store import Delete, NoNodeError, Op

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["CONTRACTIONS", "ContractionNode", "contraction_node", "read_contraction", "removal_ops"]

CONTRACTIONS = "/admin/contractions"


class ContractionNode(NamedTuple):
    """The contents of the node."""

    topic_id: UUID
    first: int
    """The first partition that retires."""
    prior_leader_epochs: tuple[tuple[int, int], ...]
    """(partition, its leader epoch) of all partitions at the time of preparation."""
    begun_ms: int
    holds: bool
    """Whether it is decided."""

    @property
    def retired(self) -> tuple[tuple[int, int], ...]:
        """The leader epochs of the retired partitions, which must be read to their end before the
        remaining ones.
        """
        return tuple(row for row in self.prior_leader_epochs if row[0] >= self.first)


def contraction_node(node: ContractionNode) -> bytes:
    """The serialized node."""
    written: dict[str, Any] = {
        "version": 1,
        "topic_id": str(node.topic_id),
        "retired_from": node.first,
        "prior_leader_epochs": {str(index): epoch for index, epoch in node.prior_leader_epochs},
        "begun_ms": node.begun_ms,
        "holds": node.holds,
    }
    return json.dumps(written, separators=(",", ":")).encode()


def removal_ops(store: Store, topic: str, first: int) -> list[list[Op]]:
    """Operations that delete the nodes of partitions from index ``first`` on, then this node. Those
    of one partition are in one group.
    """
    path = f"{TOPICS}/{topic}/partitions"
    groups: list[list[Op]] = [
        [Delete(f"{path}/{index}/state"), Delete(f"{path}/{index}")]
        for index in store.children(path)
        if int(index) >= first
    ]
    return [*groups, [Delete(f"{CONTRACTIONS}/{topic}")]]


def read_contraction(store: Store, topic: str) -> ContractionNode | None:
    """The node of a topic, or None if it has no contraction."""
    try:
        node = json.loads(store.get(f"{CONTRACTIONS}/{topic}")[0])
    except NoNodeError:
        return None
    epochs = node["prior_leader_epochs"].items()
    return ContractionNode(
        UUID(node["topic_id"]),
        node["retired_from"],
        tuple((int(index), epoch) for index, epoch in epochs),
        node["begun_ms"],
        node["holds"],
    )
