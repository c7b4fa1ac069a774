"""How the controller reads and writes contractions in the coordination store. It is a part of
store.py's ControllerStore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kstore.broker.coordination.contraction_nodes import (
    CONTRACTIONS,
    ContractionNode,
    contraction_node,
    read_contraction,
    removal_ops,
)
from kstore.broker.coordination.store import Create, Delete, Op, Set
from kstore.broker.state.controller.state import Contraction, TopicId

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.state.metadata.image import TopicImage

__all__ = ["ContractionStore"]


class ContractionStore:
    """``write`` executes groups of operations for one controller."""

    def __init__(self, store: Store, write: Callable[[Sequence[list[Op]]], None]) -> None:
        self._store = store
        self._write = write

    def load(self, topics: Iterable[TopicImage]) -> list[Contraction]:
        """Read the contractions. If the removal of retired partitions was interrupted, this
        completes it. Nodes of deleted topics are deleted.
        """
        known = {topic.name: topic for topic in topics}
        found = []
        for name in self._store.children(CONTRACTIONS):
            node, topic = read_contraction(self._store, name), known.get(name)
            if node is None:
                continue
            if topic is None or topic.topic_id != node.topic_id:
                self.cancel(name)
            elif len(topic.partitions) <= node.first:
                self.remove_retired(name, node.first)
            else:
                found.append(Contraction(TopicId(name, node.topic_id), *node[1:]))
        return found

    def begin(self, contraction: Contraction) -> None:
        """Store the retired partitions, and the current leader epochs."""
        self._write([[Create(_path(contraction), _node(contraction))]])

    def decide(self, contraction: Contraction) -> None:
        """Decide the contraction, which then cannot be rolled back."""
        self._write([[Set(_path(contraction), _node(contraction))]])

    def cancel(self, name: str) -> None:
        """Roll back: the topic keeps all its partitions."""
        self._write([[Delete(f"{CONTRACTIONS}/{name}")]])

    def remove_retired(self, name: str, first: int) -> None:
        """Delete the nodes of partitions from index ``first`` on, then the node of the
        contraction.
        """
        self._write(removal_ops(self._store, name, first))


def _path(contraction: Contraction) -> str:
    return f"{CONTRACTIONS}/{contraction.topic.name}"


def _node(contraction: Contraction) -> bytes:
    return contraction_node(
        ContractionNode(
            contraction.topic.topic_id,
            contraction.first,
            contraction.prior_leader_epochs,
            contraction.begun_ms,
            contraction.holds,
        )
    )
