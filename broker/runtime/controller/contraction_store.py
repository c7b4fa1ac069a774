"""What the controller reads of contractions in the coordination store, and writes: the part of its
store (store.py) that is only theirs.
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
    """``write`` does groups of operations, as one controller may."""

    def __init__(self, store: Store, write: Callable[[Sequence[list[Op]]], None]) -> None:
        self._store = store
        self._write = write

    def load(self, topics: Iterable[TopicImage]) -> list[Contraction]:
        """The topics that shrink. One whose last partitions were being taken away loses the rest of
        them; a node of a topic that is no more goes.
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
        """Keep which partitions retire, and today's leader epochs."""
        self._write([[Create(_path(contraction), _node(contraction))]])

    def decide(self, contraction: Contraction) -> None:
        """From now on there is no way back."""
        self._write([[Set(_path(contraction), _node(contraction))]])

    def cancel(self, name: str) -> None:
        """The topic keeps all its partitions."""
        self._write([[Delete(f"{CONTRACTIONS}/{name}")]])

    def remove_retired(self, name: str, first: int) -> None:
        """The nodes of partitions from an index on, then the contraction's."""
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
