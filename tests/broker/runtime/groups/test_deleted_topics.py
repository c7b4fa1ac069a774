"""What happens to groups' offsets when a single broker deletes a topic."""

from __future__ import annotations

from pathlib import Path

from kstore.broker.api import RequestContext
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.state.metadata.topic_rules import NewTopic
from tests.broker.api.requests.world import World, in_world
from tests.broker.runtime.groups.group_requests import committed
from tests.record_requests import commit_request

ASKED = RequestContext(8, 3, 0, "client", "127.0.0.1", "c", "PLAINTEXT", "User:ANONYMOUS")


async def commit(world: World, offset: int) -> None:
    await world.broker.topics.ensure(NewTopic("t", 1, 1))
    await world.broker.groups().handle("g", commit_request("t", {0: offset}), ASKED)


def test_a_deleted_topic_is_forgotten_before_the_deletion_is_answered(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await commit(world, 5)
        assert await committed(world.broker.groups()) == 5
        await world.broker.topics.delete("t")
        assert await committed(world.broker.groups()) is None

    in_world(tmp_path, story)


def test_without_the_offsets_topic_groups_begin_anew(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await commit(world, 5)
        before = world.broker.groups()
        await world.broker.topics.delete(OFFSETS_TOPIC)
        assert world.broker.groups.made is None
        assert before.partitions == []
        assert await committed(world.broker.groups()) is None
        await commit(world, 6)
        assert await committed(world.broker.groups()) == 6

    in_world(tmp_path, story)
