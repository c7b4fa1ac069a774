"""A contraction on a single broker is completed although steps of it fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.api import RequestContext
from kstore.broker.api.topics.delete_records import handle_delete_records
from kstore.broker.coordination import own_contractions, znodes
from kstore.broker.coordination.store import StoreDiskError, StoreError
from kstore.broker.runtime.log_dirs.log_manager import LogManager
from kstore.broker.runtime.topics import standalone_topics
from kstore.broker.runtime.topics.standalone_topics import StandaloneTopics
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.state.metadata.image import TopicImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode
from kstore.log import LogDir
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.broker.api.requests.world import World, in_world
from tests.plain_messages import Ask

ORDERED = {"kstore.partition.count.required": "true", "kstore.ordered.expansion": "true"}
NARROWER = NewPartitions("t", 1, may_shrink=True)
WAIT_S = 30
OFTEN = {"log.retention.check.interval.ms": "1"}


class Groups:
    """The groups of the broker. They are as the test says; without an answer, they hang."""

    def __init__(self, *answer: Any) -> None:
        self._answer = answer

    async def behind(self, *_: Any) -> Any:
        return self._answer or await asyncio.get_running_loop().create_future()

    async def forget(self, *_: Any) -> None:
        """The broker knows nothing about the topic."""


def topics_of(world: World) -> StandaloneTopics:
    topics = world.broker.topics
    assert isinstance(topics, StandaloneTopics)
    return topics


async def made(world: World) -> StandaloneTopics:
    topics = topics_of(world)
    await topics.create(NewTopic("t", 3, 1, configs=ORDERED))
    return topics


def shown(world: World) -> TopicImage:
    return world.broker.image.topics["t"]


def failing_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
    real = getattr(owner, name)

    def fail(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        raise error

    monkeypatch.setattr(owner, name, fail)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), OSError("no disk"), StoreError("no")])
def test_no_error_ends_the_way_to_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(standalone_topics, "STORE_RETRY_S", 0.0)

    async def story(world: World) -> None:
        topics = await made(world)
        failing_once(monkeypatch, own_contractions, "decide", error)
        await topics.add_partitions(NARROWER)
        assert shown(world).producer_count == 1
        await reached(lambda: not topics._ends, "nothing is kept of what has ended")

    in_world(tmp_path, story)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), OSError("no disk"), StoreError("no")])
def test_no_error_ends_the_look_at_what_has_retired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def story(world: World) -> None:
        topics = await made(world)
        failing_once(monkeypatch, own_contractions, "remove_retired", error)
        await topics.add_partitions(NARROWER)
        await reached(lambda: len(shown(world).partitions) == 1)
        await reached(lambda: topics._looking is not None and topics._looking.done())

    in_world(tmp_path, story, **OFTEN)


def test_a_topic_that_is_deleted_beside_logs_that_stay_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs of retired partitions cannot be deleted because of a disk error; the next start
    deletes them.
    """

    async def story(world: World) -> None:
        topics = await made(world)
        failing_once(monkeypatch, topics._replicas, "take_away", OSError("read-only"))
        await topics.add_partitions(NARROWER)
        await reached(lambda: len(shown(world).partitions) == 1)
        with pytest.raises(TopicError, match="logs of the removed partitions are not deleted"):
            await topics.add_partitions(NewPartitions("t", 2))
        await topics.delete("t")
        assert sorted(path.name for path in tmp_path.glob("t-?")) == ["t-1", "t-2"]
        await reached(lambda: not list(tmp_path.glob("t-*-delete")))

    async def afterwards(world: World) -> None:
        assert "t" not in world.broker.image.topics
        assert list(tmp_path.glob("t-*")) == []
        await made(world)

    in_world(tmp_path, story, **OFTEN)
    in_world(tmp_path, afterwards)


def test_a_topic_is_deleted_before_its_files_are_and_its_name_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files take long to delete: a client does not wait for that."""
    may_go = threading.Event()
    real = LogDir.remove_step

    def remove(log_dir: LogDir, path: str) -> bool:
        assert may_go.wait(WAIT_S)
        return real(log_dir, path)

    async def story(world: World) -> None:
        topics = await made(world)
        await topics.delete("t")
        assert len(list(tmp_path.glob("t-*-delete"))) == 3
        assert znodes.read_deletions(world.broker.topics._store) == {}
        may_go.set()
        await made(world)
        await reached(lambda: not list(tmp_path.glob("t-*-delete")))
        assert sorted(path.name for path in tmp_path.glob("t-*")) == ["t-0", "t-1", "t-2"]

    monkeypatch.setattr(LogDir, "remove_step", remove)
    in_world(tmp_path, story)


@pytest.mark.slow
def test_a_coordinator_that_hangs_holds_nothing_back_past_the_limit(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        topics = await made(world)
        await topics.create(NewTopic(OFFSETS_TOPIC, 1, 1))
        topics._groups = Groups()  # type: ignore[assignment]
        with pytest.raises(TopicError, match="group coordinator did not say") as caught:
            await topics.add_partitions(NARROWER)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert shown(world).retirement is None
        assert not topics._ends

    in_world(tmp_path, story, **{"kstore.expansion.timeout.ms": "100"})


def test_who_has_asked_is_told_that_the_topic_was_deleted(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        topics = await made(world)
        await topics.create(NewTopic(OFFSETS_TOPIC, 1, 1))
        topics._groups = Groups([0], ["slow"])  # type: ignore[assignment]
        asking = asyncio.ensure_future(topics.add_partitions(NARROWER))
        await reached(lambda: shown(world).retirement is not None)
        await topics.delete("t")
        with pytest.raises(TopicError, match="deleted in the meantime") as caught:
            await asking
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    in_world(tmp_path, story)


def test_a_topic_whose_expansion_was_not_finished_does_not_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next start would add its partitions behind those that retire."""

    async def story(world: World) -> None:
        topics = await made(world)
        failing_once(monkeypatch, znodes, "add_partitions", StoreError("no"))
        with pytest.raises(StoreError):
            await topics.add_partitions(NewPartitions("t", 4))
        with pytest.raises(TopicError, match="has begun to grow") as caught:
            await topics.add_partitions(NARROWER)
        assert caught.value.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        await topics.add_partitions(NewPartitions("t", 4))
        await topics.add_partitions(NARROWER)
        assert shown(world).producer_count == 1

    in_world(tmp_path, story)


def stored_leaders(topics: StandaloneTopics) -> list[int]:
    return [each.leader for each in znodes.read_topic(topics._store, "t").partitions]


def test_nothing_is_taken_away_while_a_log_dir_is_offline(tmp_path: Path) -> None:
    """Otherwise the store would say that the remaining partitions have no leader."""

    async def story(world: World) -> None:
        topics = await made(world)
        await topics.add_partitions(NARROWER)
        before = shown(world)
        topics.take_offline([TopicPartition("t", 0)])
        await topics._delete_retired("t")
        assert len(shown(world).partitions) == 3
        topics._publish(before)
        await topics._delete_retired("t")
        assert len(shown(world).partitions) == 1
        assert stored_leaders(topics) == [1]

    in_world(tmp_path, story)


def test_a_partition_whose_epoch_is_raised_while_its_log_dir_is_offline_has_a_leader_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_offline(manager: LogManager, key: TopicPartition) -> bool:
        return key == TopicPartition("t", 0)

    async def story(world: World) -> None:
        topics = await made(world)
        with monkeypatch.context() as patch:
            patch.setattr(LogManager, "is_offline", is_offline)
            topics.take_offline([TopicPartition("t", 0)])
            await topics.raise_leader_epochs("t", {0: 7, 1: 7})
        assert [each.leader for each in shown(world).partitions] == [-1, 1, 1]
        assert [each.leader_epoch for each in shown(world).partitions] == [7, 7, 0]
        assert stored_leaders(topics) == [1, 1, 1]

    async def afterwards(world: World) -> None:
        assert [each.leader for each in shown(world).partitions] == [1, 1, 1]
        assert [each.leader_epoch for each in shown(world).partitions] == [7, 7, 0]

    in_world(tmp_path, story)
    in_world(tmp_path, afterwards)


async def deleted_records(
    world: World, do: Callable[[], Any], *, first: bool = False
) -> list[tuple[int, int]]:
    """Error and low watermark of two retired partitions whose records are deleted meanwhile."""
    run = world.broker.node.dirs.run

    async def beside(*arguments: Any) -> Any:
        if first:
            await do()
        result = await run(*arguments)
        if not first:
            await do()
        return result

    def first_run(*arguments: Any) -> Any:
        patch.undo()
        return beside(*arguments)

    rows = [{"partition_index": index, "offset": -1} for index in (1, 2)]
    request = Ask.DeleteRecords(topics=[{"name": "t", "partitions": rows}], timeout_ms=10_000)
    context = RequestContext(21, 2, 1, "me", "h", "c", "PLAINTEXT", "User:ANONYMOUS")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.broker.node.dirs, "run", first_run)
        response = await handle_delete_records(world.broker, request, context)
    return [(row.error_code, row.low_watermark) for row in response.topics[0].partitions]


async def shrunk(world: World) -> StandaloneTopics:
    """A topic with records in two retired partitions."""
    topics = await made(world)
    for index in (1, 2):
        partition = world.broker.table.partition(b"t", index)
        assert partition is not None
        partition.log.append(b"value")
    await topics.add_partitions(NARROWER)
    return topics


def test_records_of_retired_partitions_are_deleted_even_if_those_go_before_the_answer(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        await shrunk(world)

        async def gone() -> None:
            await reached(lambda: len(shown(world).partitions) == 1)

        assert await deleted_records(world, gone) == [(0, 1), (0, 1)]

    in_world(tmp_path, story, **OFTEN)


def test_records_of_retired_partitions_count_as_deleted_where_those_go_before_the_deletion(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        await shrunk(world)

        async def emptied() -> None:
            for index in (1, 2):
                partition = world.broker.table.partition(b"t", index)
                assert partition is not None
                partition.log.delete_before(1)
            await reached(lambda: len(shown(world).partitions) == 1)

        assert await deleted_records(world, emptied, first=True) == [(0, 1), (0, 1)]

    in_world(tmp_path, story, **OFTEN)


def test_a_closed_log_that_is_led_here_is_an_error(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await shrunk(world)

        async def closed() -> None:
            for index in (1, 2):
                partition = world.broker.table.partition(b"t", index)
                assert partition is not None
                partition.log.log_dir.close_log(partition.log)

        assert await deleted_records(world, closed, first=True) == [
            (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        ] * 2  # fmt: skip

    in_world(tmp_path, story)


def test_the_answer_waits_for_the_metadata_where_a_retired_partition_was_stopped(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        topics = await shrunk(world)
        image = world.broker.image.topics["t"]

        async def stopped() -> None:
            world.broker.table.remove_partitions(b"t", 1)
            left = image._replace(partitions=image.partitions[:1], retirement=None)
            loop = asyncio.get_running_loop()
            loop.call_later(0.1, lambda: topics._take(left, None, new_epochs=True))

        assert await deleted_records(world, stopped) == [(0, 1), (0, 1)]

    in_world(tmp_path, story)


def test_the_answer_does_not_wait_for_the_metadata_of_a_partition_that_has_not_retired(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        await made(world)

        async def stopped() -> None:
            world.broker.table.remove_partitions(b"t", 1)

        async with asyncio.timeout(5):  # half of the request's timeout
            found = await deleted_records(world, stopped)
        assert found == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 2

    in_world(tmp_path, story)


def test_a_topic_that_is_deleted_meanwhile_is_unknown(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        topics = await shrunk(world)
        found = await deleted_records(world, lambda: topics.delete("t"))
        assert {code for code, _ in found} <= {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }  # fmt: skip

    in_world(tmp_path, story)


def test_a_partition_that_an_older_version_stored_without_a_leader_has_one(tmp_path: Path) -> None:
    async def before(world: World) -> None:
        await made(world)
        path = "/brokers/topics/t/partitions/1/state"
        data, version = world.broker.store.get(path)
        state = json.loads(data) | {"leader": -1}
        world.broker.store.set(path, json.dumps(state).encode(), version)

    async def after(world: World) -> None:
        leader = world.broker.node.node_id
        assert [each.leader for each in shown(world).partitions] == [leader] * 3

    in_world(tmp_path, before)
    in_world(tmp_path, after)


def test_a_topic_without_room_for_its_logs_is_made_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store cannot even remove it again, because its disk is full, too."""

    async def story(world: World) -> None:
        topics = topics_of(world)
        full = StoreDiskError("the disk is full")
        failing_once(monkeypatch, topics._replicas, "open_partitions", OSError("no space"))
        failing_once(monkeypatch, znodes, "delete_topic", full)
        with pytest.raises(TopicError, match="the disk is full") as caught:
            await topics.create(NewTopic("t"))
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in world.broker.image.topics
        assert len((await topics.create(NewTopic("t", 2))).partitions) == 2

    in_world(tmp_path, story)


def test_a_topic_whose_new_logs_cannot_be_created_grows_once_they_can(tmp_path: Path) -> None:
    in_the_way = tmp_path / "t-2"

    async def story(world: World) -> None:
        topics = topics_of(world)
        await topics.create(NewTopic("t"))
        in_the_way.touch()
        for _ in range(2):
            with pytest.raises(TopicError, match=r"'t' can't grow: .*t-2"):
                await topics.add_partitions(NewPartitions("t", 3))
        in_the_way.unlink()
        await topics.set_configs("t", {"retention.ms": "9"})
        await topics.add_partitions(NewPartitions("t", 3))
        entry = topics._replicas.table.topic(b"t")
        assert entry is not None
        assert [each.log.log_end_offset for each in entry.partitions if each is not None] == [
            0,
            0,
            0,
        ]
        assert (len(shown(world).partitions), dict(shown(world).configs)) == (
            3,
            {"retention.ms": "9"},
        )
        await topics.add_partitions(NewPartitions("t", 4))
        assert len(shown(world).partitions) == 4

    in_world(tmp_path, story)
