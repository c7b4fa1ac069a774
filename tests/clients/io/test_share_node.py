"""clients/io/share/node.py: when a share consumer fetches from a broker again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kstore.clients.core.share.holdings import Holdings
from kstore.clients.io.share.node import ShareNode
from kstore.clients.io.share.shell import ShareShell
from kstore.errors import ErrorCode
from kstore.protocol.shares.fetch import ShareFetchResponsePartitionData
from kstore.types import TopicPartition
from tests.plain_messages import Answer

TOPIC = UUID(int=7)
NEVER_MS = 3_600_000
NEW = 5
"""The leader epoch of a leader that the client does not know."""


class Shell:
    """A share consumer whose broker has refused one partition."""

    def __init__(self, error: int, leader_epoch: int = -1) -> None:
        self.row = ShareFetchResponsePartitionData(error_code=error)
        self.row.current_leader.leader_epoch = leader_epoch
        view: Any = SimpleNamespace(
            topic_id=lambda name: TOPIC, update_leader=lambda tp, leader, epoch: epoch == NEW
        )
        self.cluster: Any = SimpleNamespace(view=view, ask=self.ask, want_refresh=lambda: None)
        self.settings = {
            "group.id": "g", "fetch.max.wait.ms": 1, "fetch.min.bytes": 1, "fetch.max.bytes": 1,
            "share.acquire.mode": "batch_optimized", "check.crcs": True,
            "retry.backoff.ms": NEVER_MS, "retry.backoff.max.ms": NEVER_MS,
        }  # fmt: skip
        self.lock_timeout_ms = None
        self.holdings = Holdings()
        self.failures: list[Any] = []
        self.event = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.asked = 0

    async def ask(self, *request: Any, **how: Any) -> Any:
        self.asked += 1
        topic = {"topic_id": TOPIC, "partitions": [self.row]}
        return Answer.ShareFetch(responses=[topic])


@pytest.mark.parametrize(
    ("error", "leader_epoch", "waits"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NEW, False),
        (ErrorCode.NONE, -1, False),
    ],
)
def test_a_broker_that_refuses_and_names_no_leader_is_not_asked_again_at_once(
    error: int, leader_epoch: int, waits: bool
) -> None:
    async def story() -> None:
        shell: Any = Shell(error, leader_epoch)
        node = ShareNode(shell, 1, "member")
        node.is_fetching = True
        await node.fetch({TopicPartition("t", 0)}, 1)
        assert shell.asked == 1
        assert node.is_pausing == waits
        assert not node.is_fetching  # so acknowledgements do not wait
        node._end_pause()
        assert not node.is_pausing
        assert shell.event.is_set()

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_a_broker_that_pauses_holds_back_no_other(one_at_a_time: bool) -> None:
    nodes = {
        number: SimpleNamespace(
            is_fetching=False, is_pausing=number == 1, fetch=lambda wanted, most: sorted(wanted)
        )
        for number in (1, 2)
    }
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    asked: list[Any] = []
    shell: Any = SimpleNamespace(
        _look_up_unknown=lambda: None,
        assignment=lambda: places,
        cluster=SimpleNamespace(view=SimpleNamespace(leader=lambda tp: tp.partition + 1)),
        _node=nodes.__getitem__,
        _one_at_a_time=one_at_a_time,
        _last_node=-1,
        _run=asked.append,
    )
    ShareShell._fetch(shell, 1)
    assert asked == [[places[1]]]
    ShareShell._fetch(shell, 1)
    assert len(asked) == 1  # the second one is fetching
