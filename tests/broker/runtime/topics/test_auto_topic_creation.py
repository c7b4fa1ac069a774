"""A Metadata request that creates topics waits only a moment for a creation that hangs: on a frozen
log dir, or for a controller that does not answer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.topics import auto_topic_creation
from kstore.broker.runtime.topics.auto_topic_creation import AutoTopicCreationManager
from kstore.broker.state.metadata.topic_rules import NewTopic, TopicError
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS, decode_response
from tests.broker.api.requests.world import World, in_world
from tests.plain_messages import Ask

NOT_YET = ErrorCode.LEADER_NOT_AVAILABLE


def test_metadata_describes_the_other_topics_while_a_creation_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_topic_creation, "WAIT_S", 0.01)
    topics = [{"name": "new"}, {"name": "newer"}, {"name": "old"}]
    request = Ask.Metadata(topics=topics, allow_auto_topic_creation=True)

    async def story(world: World) -> None:
        released, begun = asyncio.Event(), []
        await world.broker.topics.create(NewTopic("old"))
        ensure = world.broker.topics.ensure

        async def hang(new: NewTopic) -> Any:
            begun.append(new.name)
            if new.name == "new":
                await released.wait()
            return await ensure(new)

        async def error_codes() -> dict[str, int]:
            answer = await world.ask(request, 9)
            _, response = decode_response(answer, APIS[request.API_KEY].response, 9)
            return {topic.name: topic.error_code for topic in response.topics}

        monkeypatch.setattr(world.broker.topics, "ensure", hang)
        while await error_codes() != {"new": NOT_YET, "newer": 0, "old": 0}:
            pass
        assert begun == ["new", "newer"], "later requests waited for the first one's creations"
        released.set()
        while "new" not in world.broker.image.topics:
            await asyncio.sleep(0.001)
        assert await error_codes() == {"new": 0, "newer": 0, "old": 0}
        assert begun == ["new", "newer"]

    in_world(tmp_path, story)


@pytest.mark.parametrize(("code", "answered"), [
    (ErrorCode.NOT_CONTROLLER, NOT_YET),
    (ErrorCode.REQUEST_TIMED_OUT, NOT_YET),
    (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
])  # fmt: skip
def test_a_refused_creation_is_tried_again_at_the_next_request(code: int, answered: int) -> None:
    refused = []

    async def refuse(new: NewTopic) -> Any:
        refused.append(new.name)
        raise TopicError(code, "no")

    async def ask() -> None:
        node: Any = SimpleNamespace(loop=asyncio.get_running_loop())
        topics: Any = SimpleNamespace(ensure=refuse)
        creation = AutoTopicCreationManager(node, topics)
        for _ in range(2):
            assert await creation.create(["t"]) == {"t": answered}

    asyncio.run(ask())
    assert refused == ["t", "t"]


def test_the_number_of_hanging_creations_is_limited_and_closing_cancels_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto_topic_creation, "WAIT_S", 0.01)
    monkeypatch.setattr(auto_topic_creation, "MOST", 2)
    begun = []

    async def hang(new: NewTopic) -> Any:
        begun.append(new.name)
        await asyncio.Event().wait()

    async def ask() -> None:
        node: Any = SimpleNamespace(loop=asyncio.get_running_loop())
        topics: Any = SimpleNamespace(ensure=hang)
        creation = AutoTopicCreationManager(node, topics)
        for names in (["a", "b", "c"], ["c", "d"]):
            assert await creation.create(names) == dict.fromkeys(names, NOT_YET)
        waiting = asyncio.create_task(creation.create(["a"]))
        await asyncio.sleep(0)
        await creation.close()
        assert await waiting == {"a": NOT_YET}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(ask())
    assert begun == ["a", "b"]
