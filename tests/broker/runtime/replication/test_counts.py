"""A leader that was prepared for an expansion and hears no more reads the store itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kstore._fast.broker.partition import TopicEntry
from kstore.broker.coordination import znodes
from kstore.broker.coordination.contraction_nodes import (
    CONTRACTIONS,
    ContractionNode,
    contraction_node,
)
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.runtime.replication.counts import PreparedCounts
from kstore.broker.state.metadata.image import MetadataImage, PartitionImage, TopicImage
from tests.beside.waiting import reached


class Scene:
    """A topic with two partitions. Their leaders, on this broker, believe that it has four."""

    def __init__(self, *, growing: bool) -> None:
        loop = asyncio.get_running_loop()
        self.reports: list[str] = []
        self.reads = 0
        node: Any = SimpleNamespace(
            loop=loop,
            config={"kstore.expansion.timeout.ms": 1},
            report=self.reports.append,
            run_blocking=self._read,
        )
        self.store = MemoryStore()
        znodes.prepare(self.store)
        partition = PartitionImage(0, 0, (0,), (0,))
        self.topic = znodes.create_topic(
            self.store, TopicImage("t", uuid4(), (partition, partition), {})
        )
        if growing:
            znodes.begin_expansion(self.store, self.topic, [(0,), (0,)])
        image = MetadataImage("").with_topics(self.topic)
        self.metadata: Any = SimpleNamespace(image=image)
        self.counts = PreparedCounts(node, self.store, self.metadata)
        self.entry = TopicEntry(b"t", self.topic.topic_id.bytes)
        self.when_read: Callable[[], None] = lambda: None

    async def _read(self, call: Callable[[], Any]) -> Any:
        found = call()
        self.reads += 1
        self.when_read()
        await asyncio.sleep(0)
        return found


def tell(story: Callable[[Scene], Awaitable[None]], *, growing: bool = False) -> None:
    async def run() -> None:
        scene = Scene(growing=growing)
        try:
            await story(scene)
        finally:
            scene.counts.close()

    asyncio.run(run())


def test_a_rollback_that_the_controller_could_not_say_is_found_in_the_store() -> None:
    async def story(scene: Scene) -> None:
        scene.counts.apply(scene.entry, 4)
        await reached(lambda: scene.entry.partition_count == 2)
        assert scene.reports == [
            "'t' has 2 partitions, and the controller prepared it for 4 and did not say how that "
            "ended: its producers continue"
        ]

    tell(story)


def test_while_the_store_has_it_growing_the_old_count_stays_refused() -> None:
    async def story(scene: Scene) -> None:
        scene.counts.apply(scene.entry, 4)
        await reached(lambda: scene.reads == 3)
        assert scene.entry.partition_count == 4

    tell(story, growing=True)


def test_what_the_controller_says_meanwhile_counts() -> None:
    """It was prepared again after the check, and before the result of the check was applied."""

    async def story(scene: Scene) -> None:
        def prepared_anew() -> None:
            scene.when_read = lambda: None
            znodes.begin_expansion(scene.store, scene.topic, [(0,), (0,)])
            scene.counts.apply(scene.entry, 4)

        scene.when_read = prepared_anew
        scene.counts.apply(scene.entry, 4)
        await reached(lambda: scene.reads == 3)
        assert scene.entry.partition_count == 4

    tell(story)


def test_a_commit_that_is_told_of_meanwhile_leaves_the_other_topics_to_be_looked_at() -> None:
    async def story(scene: Scene) -> None:
        others = [TopicEntry(name, b"0" * 16) for name in (b"u", b"v")]
        partition = PartitionImage(0, 0, (0,), (0,))
        for entry in others:
            name = entry.name.decode()
            topic = znodes.create_topic(
                scene.store, TopicImage(name, uuid4(), (partition, partition), {})
            )
            scene.metadata.image = scene.metadata.image.with_topics(topic)

        def committed() -> None:
            scene.when_read = lambda: None
            for entry in others:
                scene.counts.apply(entry, 2)
            znodes.begin_expansion(scene.store, scene.topic, [(0,), (0,)])
            scene.counts.apply(scene.entry, 4)

        scene.when_read = committed
        for entry in (scene.entry, *others):
            scene.counts.apply(entry, 4)
        await reached(lambda: scene.reads == 3)
        assert scene.entry.partition_count == 4

    tell(story)


def test_a_look_that_is_over_late_changes_no_count_that_was_committed_meanwhile() -> None:
    async def story(scene: Scene) -> None:
        def committed() -> None:
            partition = PartitionImage(0, 0, (0,), (0,))
            grown = scene.topic._replace(partitions=(partition,) * 4)
            scene.metadata.image = scene.metadata.image.with_topics(grown)
            scene.counts.apply(scene.entry, 4)

        scene.when_read = committed
        scene.counts.apply(scene.entry, 4)
        await reached(lambda: scene.reads == 1)
        await asyncio.sleep(0.01)
        assert scene.entry.partition_count == 4
        assert scene.reports == []

    tell(story)


@pytest.mark.parametrize("told", [-1, 4])
def test_a_count_that_clients_are_told_needs_no_look_nor_does_none(told: int) -> None:
    async def story(scene: Scene) -> None:
        scene.counts.apply(scene.entry, told)
        partition = PartitionImage(0, 0, (0,), (0,))
        grown = scene.topic._replace(partitions=(partition,) * 4)
        scene.metadata.image = scene.metadata.image.with_topics(grown)
        scene.counts.apply(scene.entry, told)
        await asyncio.sleep(0.02)
        assert scene.reads == 0
        assert scene.entry.partition_count == told

    tell(story)


@pytest.mark.parametrize("end", ["rolled back", "decided", "of another topic", "prepared"])
def test_a_leader_that_has_not_heard_how_a_contraction_ended_finds_that_in_the_store(
    end: str,
) -> None:
    async def story(scene: Scene) -> None:
        if end != "rolled back":
            topic_id = uuid4() if end == "of another topic" else scene.topic.topic_id
            node = ContractionNode(topic_id, 1, ((0, 0), (1, 0)), 0, holds=end == "decided")
            scene.store.ensure(CONTRACTIONS)
            scene.store.create(f"{CONTRACTIONS}/t", contraction_node(node))
        scene.counts.apply(scene.entry, 2, 1)
        if end == "prepared":
            await reached(lambda: scene.reads > 2)
            assert (scene.entry.partition_count, scene.entry.retired_from) == (2, 1)
            scene.store.delete(f"{CONTRACTIONS}/t")
        if end == "decided":
            await reached(lambda: scene.entry.partition_count == 1)
            assert (scene.entry.retired_from, scene.reports) == (1, [])
        else:
            await reached(lambda: scene.entry.retired_from == -1)
            assert scene.entry.partition_count == 2
            assert scene.reports == [
                "'t' keeps its 2 partitions, and the controller prepared it to shrink"
                " and did not say how that ended: its producers continue"
            ]

    tell(story)
