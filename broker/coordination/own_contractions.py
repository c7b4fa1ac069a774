"""Contractions (KIP-253) in the store of a single broker, which writes what a controller writes in
a cluster. Each function is one multi, so a crash leaves all of it or nothing. Calls block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.coordination.contraction_nodes import (
    CONTRACTIONS,
    ContractionNode,
    contraction_node,
    read_contraction,
    removal_ops,
)
from kstore.broker.coordination.partition_nodes import multi_with_epochs
from kstore.broker.coordination.store import Create, NoNodeError, Set
from kstore.broker.coordination.znodes import TOPICS, bump_ops, read_topic, topic_node

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.state.metadata.image import TopicImage

__all__ = [
    "begin",
    "cancel",
    "decide",
    "finish_removal",
    "half_removed",
    "read_all",
    "remove_retired",
]


def begin(store: Store, topic: TopicImage, first: int, now_ms: int) -> TopicImage:
    """Note that partitions from index ``first`` on retire, with the current leader epochs, and
    begin new leader epochs. Returns the topic with these. Raises BadVersionError.
    """
    store.ensure(CONTRACTIONS)
    priors = tuple((index, each.leader_epoch) for index, each in enumerate(topic.partitions))
    node = ContractionNode(topic.topic_id, first, priors, now_ms, holds=False)
    ops, bumped = bump_ops(topic)
    store.multi([Create(f"{CONTRACTIONS}/{topic.name}", contraction_node(node)), *ops])
    return bumped


def decide(store: Store, name: str) -> None:
    """Decide the contraction. After that it cannot be rolled back. Raises NoNodeError if none is
    prepared.
    """
    node = read_contraction(store, name)
    if node is None:
        raise NoNodeError(f"{CONTRACTIONS}/{name}")
    store.set(f"{CONTRACTIONS}/{name}", contraction_node(node._replace(holds=True)))


def cancel(store: Store, name: str) -> None:
    """Roll back: the topic keeps all its partitions."""
    store.delete(f"{CONTRACTIONS}/{name}")


def remove_retired(store: Store, topic: TopicImage, first: int) -> tuple[TopicImage, int]:
    """Remove partitions from index ``first`` on from a topic. Their nodes stay until their logs are
    deleted (`finish_removal`). Returns the topic, and the partition epoch of the removal.
    """
    # Future partitions with these numbers begin with a larger leader epoch.
    epoch = max(each.leader_epoch for each in topic.partitions)
    ops, raised = bump_ops(topic._replace(partitions=topic.partitions[:first]), least=epoch)
    removed = multi_with_epochs(
        store, 1, lambda _: [Set(f"{TOPICS}/{topic.name}", topic_node(raised)), *ops]
    )
    return raised, removed


def read_all(store: Store) -> dict[str, ContractionNode]:
    """All contractions by topic."""
    names = store.children(CONTRACTIONS) if store.exists(CONTRACTIONS) else []
    found = {name: read_contraction(store, name) for name in names}
    return {name: node for name, node in found.items() if node is not None}


def half_removed(store: Store) -> list[tuple[TopicImage, int]]:
    """Topics whose retired partitions are removed, but whose nodes, and perhaps logs, still exist;
    and the number of partitions including these.
    """
    found = []
    for name, node in read_all(store).items():
        topic = read_topic(store, name)
        if len(topic.partitions) <= node.first:
            found.append((topic, len(node.prior_leader_epochs)))
    return found


def finish_removal(store: Store, name: str, first: int) -> None:
    """Delete the nodes of partitions from index ``first`` on, after their logs were deleted."""
    store.multi([op for group in removal_ops(store, name, first) for op in group])
