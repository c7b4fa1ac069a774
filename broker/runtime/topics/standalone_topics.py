"""Topics of a single broker, with contractions that keep the order of keys (KIP-253). The steps are
those of a controller (runtime/controller/shrinking.py), without other brokers: prepare the
contraction, wait for groups, decide it or roll it back, and delete retired partitions once they are
empty.

If the broker ends after the first step, the next start completes the contraction.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kstore.broker.coordination import own_contractions, znodes
from kstore.broker.coordination.contraction_nodes import ContractionNode
from kstore.broker.coordination.store import StoreDiskError
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC, Topics
from kstore.broker.state.metadata.contraction_rules import (
    ASK_AGAIN_S,
    LOOK_S,
    RETENTION_CHECK,
    TIMEOUT,
    behind_words,
    check_contraction,
    check_no_other_contraction,
    deleted_meanwhile,
    keeps_its_partitions,
    left_ms,
    records_left,
    shrinks_yet,
)
from kstore.broker.state.metadata.retirement import Retirement
from kstore.broker.state.metadata.topic_rules import NewPartitions, TopicError
from kstore.errors import ErrorCode, KafkaError
from kstore.log.errors import LogError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import TopicImage
    from kstore.broker.state.metadata.topic_rules import NewTopic

__all__ = ["GroupsOfTopics", "StandaloneTopics"]

LOGGER = logging.getLogger("kstore.broker")
STORE_RETRY_S = 0.5


class GroupsOfTopics(Protocol):
    """The interface between topics and groups."""

    async def behind(
        self, name: str, topic_id: UUID, requested: Retirement
    ) -> tuple[list[int], list[str]]:
        """The served partitions of __consumer_offsets, and the groups in them that read remaining
        partitions of a topic but have not committed to the end of the retired ones. Raises
        KafkaError if this is not known.
        """

    async def forget(self, name: str, topic_id: UUID) -> None:
        """Called when a topic was deleted."""

    async def forget_partitions(self, name: str, first: int) -> None:
        """Called when the partitions of a topic from index ``first`` on were removed."""


class StandaloneTopics(Topics):
    """Topics of a single broker, with contractions."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        replicas: LogManager,
        refuse_logs: Any,
        groups: GroupsOfTopics,
    ) -> None:
        super().__init__(node, store, metadata, replicas, refuse_logs, groups.forget)
        self._node = node
        self._groups = groups
        self._ends: dict[str, asyncio.Task[TopicError | None]] = {}
        """Topic to the task that completes its contraction. The task's result is the reason if the
        contraction was rolled back.
        """
        self._retired: set[str] = set()
        """The topics with retired partitions."""
        self._half_made: dict[str, TopicImage] = {}
        """Topics in the store whose logs could not be created, and that could not be removed."""
        self._half_grown: dict[str, tuple[TopicImage, int]] = {}
        """Topics with more partitions in the store, from an index on, than could be created."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Task[None] | None = None
        """The task that waits until retired partitions are empty."""
        self._removing: dict[str, UUID] = {}
        """Topics whose retired partitions are removed, but whose logs are not. The next start
        deletes logs that cannot be deleted now.
        """

    def load(self) -> None:
        """See Topics. Also completes contractions that were interrupted. Blocks."""
        for topic, count in own_contractions.half_removed(self._store):
            first = len(topic.partitions)
            for index in range(first, count):
                self._replicas.delete_now(TopicPartition(topic.name, index))
            own_contractions.finish_removal(self._store, topic.name, first)
        super().load()
        for name, node in own_contractions.read_all(self._store).items():
            known = self._image.topics.get(name)
            if known is not None and node.topic_id == known.topic_id:
                self._take(known, _retirement(known, node))
                if node.holds:
                    self._look_soon()
                else:
                    self._finish_soon(known, node.begun_ms)

    def close(self) -> None:
        """Leave unfinished changes to the next start."""
        for task in self._tasks:
            task.cancel()

    # ---- a full disk ----

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """See Topics. First removes what is left of a topic whose logs could not be created."""
        with self._storing(new.name):
            async with self._turn(new.name):
                half_made = self._half_made.get(new.name)
                if half_made is not None and not validate_only:
                    await self._undo(half_made)
            return await super().create(new, validate_only=validate_only)

    async def delete(self, name: str) -> None:
        """See Topics."""
        with self._storing(name):
            await super().delete(name)

    async def _remove(self, topic: TopicImage) -> None:
        """See Topics. Includes the logs of an expansion that was not completed."""
        grown, first = self._half_grown.get(topic.name, (None, 0))
        if grown is not None and grown.topic_id == topic.topic_id:
            topic = topic._replace(partitions=topic.partitions + grown.partitions[first:])
        await super()._remove(topic)
        self._half_grown.pop(topic.name, None)

    async def set_configs(
        self, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """See Topics."""
        with self._storing(name):
            await super().set_configs(name, configs, validate_only=validate_only)

    @contextmanager
    def _storing(self, name: str) -> Iterator[None]:
        """Convert a failure of the store's disk to a TopicError, so that only this topic of a
        request fails.
        """
        try:
            yield
        except StoreDiskError as problem:
            self._node.report(f"'{name}' was not changed: {problem}", "the store's disk")
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem

    async def _undo(self, topic: TopicImage) -> None:
        self._half_made[topic.name] = topic
        await super()._undo(topic)
        del self._half_made[topic.name]

    async def _completed(self, name: str, count: int, *, validate_only: bool) -> bool:
        """Open the logs that an earlier expansion could not create. Whether the topic then has this
        number of partitions.
        """
        if validate_only:
            return False
        async with self._turn(name):
            known = self._known(name)
            grown, first = self._half_grown.get(name, (None, 0))
            if grown is None or grown.topic_id != known.topic_id:
                return False
            self.check_growth(name)
            self._check_online(known, "grow")
            added = grown.partitions[first:]
            self._check_room(name, len(added))
            # The topic may have changed since the first attempt.
            grown = known._replace(partitions=known.partitions + added)
            await self._open_added(grown, first)
        return len(grown.partitions) == count

    async def _open_added(self, grown: TopicImage, first: int) -> None:
        self._half_grown[grown.name] = grown, first
        try:
            await super()._open_added(grown, first)
        except (LogError, OSError) as problem:  # the next attempt, or the next start, completes it
            why = f"The topic '{grown.name}' can't grow: {problem}"
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, why) from problem
        del self._half_grown[grown.name]

    # ---- changing the partition count ----

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Expand a topic, or contract it if requested. Raises TopicError."""
        with self._storing(new.name):
            await self._change_count(new, validate_only=validate_only)

    async def _change_count(self, new: NewPartitions, *, validate_only: bool) -> None:
        name, count = new.name, new.total_count
        if not (new.may_shrink and count < len(self._known(name).partitions)):
            if not await self._completed(name, count, validate_only=validate_only):
                await super().add_partitions(new, validate_only=validate_only)
            return
        finishing = await self._begin(new, validate_only=validate_only)
        problem = None if finishing is None else await asyncio.shield(finishing)
        if problem is not None:
            raise problem

    def check_growth(self, name: str) -> None:
        """Raise TopicError if new partitions would have the numbers of retired partitions whose
        logs still exist.
        """
        topic = self._image.topics.get(name)
        if topic is not None and topic.retirement is not None:
            raise shrinks_yet(name, topic.retirement.first, len(topic.partitions))
        if topic is not None and self._leaves_logs(topic):
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"'{name}' has shrunk, and the logs of the removed partitions are not deleted yet: "
                "it can grow after that.",
            )

    def _leaves_logs(self, topic: TopicImage) -> bool:
        return self._removing.get(topic.name) == topic.topic_id

    async def _begin(
        self, new: NewPartitions, *, validate_only: bool
    ) -> asyncio.Task[TopicError | None] | None:
        """Prepare a contraction. Returns the task that completes it. Raises TopicError."""
        name, first = new.name, new.total_count
        async with self._turn(name), self._one_at_a_time:
            topic = self._known(name)
            check_contraction(self._image, new, self._config["log.cleanup.policy"])
            if topic.retirement is not None:
                check_no_other_contraction(name, topic.retirement.first, first)
                return None if validate_only else self._ends.get(name)
            self.check_growth(name)
            self._check_online(topic, "shrink")
            await self._check_grown(topic)
            self._check_priors(topic, first)
            if validate_only:
                return None
            now_ms = self._node.now_ms()
            begin = functools.partial(own_contractions.begin, self._store, topic, first, now_ms)
            bumped = await self._in_store(begin)
            epoch = topic.partitions[first].leader_epoch
            life = topic.partitions[first].partition_epoch
            configs = self._known(name).configs
            bumped = bumped._replace(configs=configs)
            self._take(bumped, Retirement(first, epoch, life), new_epochs=True)
            return self._finish_soon(bumped, now_ms)

    async def _check_grown(self, topic: TopicImage) -> None:
        """Raise TopicError if an expansion was not completed because the store failed."""
        known = await self._in_store(lambda: znodes.read_count(self._store, topic.name))
        if known is None or known.partitions != len(topic.partitions):
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"'{topic.name}' has begun to grow: ask for that again, or restart this broker,"
                " before it shrinks.",
            )

    def _check_priors(self, topic: TopicImage, first: int) -> None:
        """Raise TopicError if a retiring partition must be read after a remaining one."""
        priors = {p for each in topic.partitions[first:] for p in each.prior_leader_epochs}
        left = []
        for index, epoch in sorted(priors):
            partition = self._partition(topic.name, index)
            end = partition.end_offset_for_epoch(epoch)[1]
            if end > partition.log_start_offset:
                left.append(index)
        if left:
            raise TopicError(ErrorCode.POLICY_VIOLATION, records_left(topic.name, left))

    def _take(
        self, topic: TopicImage, retirement: Retirement | None, *, new_epochs: bool = False
    ) -> None:
        """Apply the retirement of a topic's partitions. ``new_epochs``: leader epochs have
        changed.
        """
        entry = self._replicas.table.topic(topic.name.encode())
        assert entry is not None, topic.name
        taken = topic._replace(retirement=retirement)
        entry.retired_from = -1 if retirement is None else retirement.first
        self._retired.discard(topic.name)
        if retirement is not None and retirement.holds:
            self._retired.add(topic.name)
        if new_epochs:
            self._lead(taken, taken.producer_count)
            return
        entry.partition_count = taken.producer_count
        self._publish(taken)

    def _partition(self, name: str, index: int) -> Any:
        partition = self._replicas.table.partition(name.encode(), index)
        assert partition is not None, (name, index)
        return partition

    # ---- completing a contraction ----

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _finish_soon(self, topic: TopicImage, begun_ms: int) -> asyncio.Task[TopicError | None]:
        name = topic.name
        left_s = left_ms(self._config[TIMEOUT], begun_ms, self._node.now_ms()) / 1000
        finishing = self._ends[name] = self._spawn(self._finish(name, topic.topic_id, left_s))

        def forget(_: object) -> None:
            if self._ends.get(name) is finishing:  # otherwise another topic has this name now
                del self._ends[name]

        finishing.add_done_callback(forget)
        return finishing

    async def _finish(self, name: str, topic_id: UUID, left_s: float) -> TopicError | None:
        """Decide the contraction, or roll it back and return why."""
        deadline = self._node.loop.time() + left_s
        while True:
            try:
                topic = self._image.topics.get(name)
                if topic is None or topic.topic_id != topic_id or topic.retirement is None:
                    return deleted_meanwhile(name)
                left_s = deadline - self._node.loop.time()
                why = await self._obstacle(topic, topic.retirement, left_s)
                if not why:
                    await self._end(topic_id, name, holds=True)
                    return None
                if self._node.loop.time() >= deadline:
                    await self._end(topic_id, name, holds=False)
                    have, timeout_ms = len(topic.partitions), self._config[TIMEOUT]
                    why = keeps_its_partitions(name, have, why, timeout_ms)
                    LOGGER.warning("%s", why)
                    return TopicError(ErrorCode.REQUEST_TIMED_OUT, why)
                await asyncio.sleep(ASK_AGAIN_S)
            except Exception as problem:  # noqa: BLE001 - a task must end
                self._node.report(f"'{name}' is prepared to shrink, and stays so: {problem}")
                await asyncio.sleep(STORE_RETRY_S)

    async def _obstacle(self, topic: TopicImage, retirement: Retirement, left_s: float) -> str:
        """Why the contraction cannot be decided now, or "". ``left_s``: how long to wait for the
        group coordinator, at least one second.
        """
        for index in range(retirement.first, len(topic.partitions)):
            # Appends that were in progress when the contraction was prepared must be read, too.
            if self._partition(topic.name, index).appends_queued:
                return f"appends to partition {index} wait for the disk, and were not done"
        if OFFSETS_TOPIC not in self._image.topics:
            return ""
        try:
            asking = self._spawn(self._groups.behind(topic.name, topic.topic_id, retirement))
            answered, _ = await asyncio.wait({asking}, timeout=max(left_s, 1))
            if not answered:
                return "the group coordinator did not say which groups are behind"
            served, behind = asking.result()
        except KafkaError as problem:
            return f"the group coordinator could not say which groups are behind ({problem})"
        if len(served) < len(self._image.topics[OFFSETS_TOPIC].partitions):
            return "the group coordinator could not say which groups are behind"
        return behind_words(behind)

    async def _end(self, topic_id: UUID, name: str, *, holds: bool) -> None:
        """Decide the contraction, or roll it back."""
        async with self._turn(name), self._one_at_a_time:
            topic = self._image.topics.get(name)
            if topic is None or topic.topic_id != topic_id or topic.retirement is None:
                return
            step = own_contractions.decide if holds else own_contractions.cancel
            await self._in_store(functools.partial(step, self._store, name))
            topic = self._known(name)
            assert topic.retirement is not None
            self._take(topic, topic.retirement._replace(holds=True) if holds else None)
        if holds:
            LOGGER.info(
                "'%s' has shrunk to %d partitions; the others are deleted once they are empty",
                name, topic.producer_count,
            )  # fmt: skip
            self._look_soon()

    # ---- the end of retired partitions ----

    def _look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = self._spawn(self._follow_retired())

    async def _follow_retired(self) -> None:
        """Delete retired partitions once they are empty, while there are any."""
        while self._retired:
            await asyncio.sleep(min(LOOK_S, self._config[RETENTION_CHECK] / 1000))
            self._retired.difference_update([name for name in self._retired if self._is_over(name)])
            for name in sorted(self._retired):
                try:
                    await self._delete_retired(name)
                except Exception as problem:  # noqa: BLE001 - other topics continue
                    self._node.report(f"retired partitions of '{name}' were not deleted: {problem}")

    def _is_over(self, name: str) -> bool:
        """Whether the topic was deleted, also if a new topic has its name."""
        topic = self._image.topics.get(name)
        return topic is None or topic.retirement is None

    def _is_empty(self, name: str, index: int) -> bool:
        partition = self._partition(name, index)
        start, end = partition.log_start_offset, partition.log_end_offset
        return bool(partition.online) and start == end

    async def _delete_retired(self, name: str) -> None:
        async with self._turn(name):
            async with self._one_at_a_time:
                topic = self._image.topics.get(name)
                if topic is None or topic.retirement is None or not topic.retirement.holds:
                    return
                if any(each.leader < 0 for each in topic.partitions):
                    return  # the store would still say so once the log dir works again
                first, count = topic.retirement.first, len(topic.partitions)
                if not all(self._is_empty(name, index) for index in range(first, count)):
                    return
                remove = functools.partial(
                    own_contractions.remove_retired, self._store, topic, first
                )
                left, epoch = await self._in_store(remove)
                self._removing[name] = topic.topic_id
                self._replicas.table.remove_partitions(name.encode(), first)
                left = left._replace(configs=self._known(name).configs, retirement=None)
                self._take(left, None, new_epochs=True)
                self._show(self._image, epoch)
            LOGGER.info("'%s' now has %d partitions: the others were empty", name, first)
            keys = (TopicPartition(name, index) for index in range(first, count))
            try:
                self._replicas.removals.begin(await (await self._replicas.take_away(keys)))
            except (LogError, OSError) as problem:
                self._replicas.report(
                    f"logs of retired partitions of {name} were not deleted: {problem}"
                )
                return
            # Forget the offsets before the topic can expand: new partitions with these numbers have
            # other offsets.
            await self._groups.forget_partitions(name, first)
            await self._in_store(
                functools.partial(own_contractions.finish_removal, self._store, name, first)
            )
            del self._removing[name]


def _retirement(topic: TopicImage, node: ContractionNode) -> Retirement:
    epoch = dict(node.prior_leader_epochs)[node.first]
    life = topic.partitions[node.first].partition_epoch
    return Retirement(node.first, epoch, life, node.holds)
