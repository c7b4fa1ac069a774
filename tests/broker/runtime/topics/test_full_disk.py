"""A single broker's topics while the disk is full, and afterwards: each step can be repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import StoreDiskError
from kstore.broker.runtime.topics.standalone_topics import StandaloneTopics
from kstore.broker.state.metadata.image import TopicImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceResponse
from kstore.protocol.registry import decode_response
from kstore.record import build_batch
from tests.beside.waiting import reached
from tests.broker.api.requests.world import World, in_world
from tests.broker.runtime.topics.test_standalone_topics import failing_once, shown, topics_of
from tests.record_requests import only, produce_request

FULL = StoreDiskError("the disk is full")


def test_the_removal_of_a_half_made_topic_can_be_repeated_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        topics = topics_of(world)
        delete = znodes.delete_topic

        def deleted_in_doubt(*arguments: Any) -> int:
            delete(*arguments)
            monkeypatch.setattr(znodes, "delete_topic", delete)
            raise FULL

        failing_once(monkeypatch, topics._replicas, "open_partitions", OSError("no space"))
        monkeypatch.setattr(znodes, "delete_topic", deleted_in_doubt)
        with pytest.raises(TopicError, match="the disk is full"):
            await topics.create(NewTopic("t"))
        assert len((await topics.create(NewTopic("t", 2))).partitions) == 2
        assert znodes.read_deletions(world.broker.store) == {}

    in_world(tmp_path, story)


def test_a_deletion_that_cannot_be_noted_as_finished_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is deleted, and the next start forgets the note."""
    forgotten = []

    async def story(world: World) -> None:
        topics = topics_of(world)

        async def forget(name: str, _: Any) -> None:
            forgotten.append(name)

        monkeypatch.setattr(topics, "_forget_offsets", forget)
        failing_once(monkeypatch, topics._replicas, "open_partitions", OSError("no space"))
        failing_once(monkeypatch, znodes, "finish_deletion", FULL)
        with pytest.raises(TopicError, match="'t' can't be created: no space"):
            await topics.create(NewTopic("t"))
        await topics.create(NewTopic("t", 2))
        failing_once(monkeypatch, znodes, "finish_deletion", FULL)
        await topics.delete("t")
        assert forgotten == ["t"]
        await topics.create(NewTopic("t", 3))
        assert list(znodes.read_deletions(world.broker.store)) == ["t"]

    async def afterwards(world: World) -> None:
        assert len(shown(world).partitions) == 3
        assert znodes.read_deletions(world.broker.store) == {}

    in_world(tmp_path, story)
    in_world(tmp_path, afterwards)


async def half_grown(world: World, in_the_way: Path) -> StandaloneTopics:
    """A topic of one partition with three in the store, until a file is not in the way."""
    topics = topics_of(world)
    await topics.create(NewTopic("t"))
    in_the_way.touch()
    with pytest.raises(TopicError, match="'t' can't grow"):
        await topics.add_partitions(NewPartitions("t", 3))
    return topics


def test_an_expansion_that_is_completed_later_keeps_what_has_changed_meanwhile(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        topics = await half_grown(world, tmp_path / "t-2")
        await topics.raise_leader_epochs("t", {0: 7})
        entry = topics._replicas.table.topic(b"t")
        assert entry is not None
        assert entry.partition_count == 3, "producers with the old count stay refused"
        (tmp_path / "t-2").unlink()
        await topics.add_partitions(NewPartitions("t", 3))
        assert [each.leader_epoch for each in shown(world).partitions] == [7, 1, 1]
        assert [each.log is not None for each in entry.partitions if each] == [True] * 3

    in_world(tmp_path, story)


def test_an_expansion_is_not_completed_while_a_log_dir_is_offline(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        topics = await half_grown(world, tmp_path / "t-2")
        (tmp_path / "t-2").unlink()
        before = shown(world)
        topics._publish(before._replace(partitions=(before.partitions[0]._replace(leader=-1),)))
        with pytest.raises(TopicError, match="its partition 0 is in a failed log dir"):
            await topics.add_partitions(NewPartitions("t", 3))
        assert [each.leader for each in shown(world).partitions] == [-1]
        topics._publish(before)
        await topics.add_partitions(NewPartitions("t", 3))
        assert [each.leader for each in shown(world).partitions] == [1, 1, 1]

    in_world(tmp_path, story)


def test_of_two_requests_that_complete_an_expansion_one_opens_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    async def story(world: World) -> None:
        topics = await half_grown(world, tmp_path / "t-2")
        (tmp_path / "t-2").unlink()
        open_logs = topics._open

        async def opening(topic: TopicImage, first: int) -> None:
            opened.append((len(topic.partitions), first))
            await open_logs(topic, first)

        monkeypatch.setattr(topics, "_open", opening)
        again = NewPartitions("t", 3)
        asked = topics.add_partitions(again), topics.add_partitions(again)
        first, second = await asyncio.gather(*asked, return_exceptions=True)
        assert first is None
        assert isinstance(second, TopicError)
        assert second.code == ErrorCode.INVALID_PARTITIONS
        assert opened == [(3, 1)]

    in_world(tmp_path, story)


def test_a_topic_is_deleted_with_the_logs_of_an_expansion_that_was_not_completed(
    tmp_path: Path,
) -> None:
    """They take producers' records before the expansion is shown: the store has decided it."""

    async def story(world: World) -> None:
        topics = await half_grown(world, tmp_path / "t-2")
        batch = build_batch([b"v"])
        answer = await world.ask(produce_request("t", batch, first=1, count=3, acks=-1), 12)
        row = only(decode_response(answer, ProduceResponse, 12)[1])
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
        assert len(shown(world).partitions) == 1
        (tmp_path / "t-2").unlink()
        await topics.delete("t")
        await reached(lambda: not list(tmp_path.glob("t-*")))

    in_world(tmp_path, story)
