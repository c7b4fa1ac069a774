"""What simulated members of groups send again after an error."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.protocol.groups.consumer_groups import ConsumerGroupHeartbeatResponse
from kstore.protocol.groups.streams_groups import StreamsGroupHeartbeatResponse
from tests.sim.history import History
from tests.sim.machines.loop import SimLoop
from tests.sim.workloads.client import UnansweredError
from tests.sim.workloads.grouping import ConsumerMember, StreamsMember
from tests.sim.workloads.owning import WAITS

KINDS: list[tuple[Any, Any]] = [
    (ConsumerMember, ConsumerGroupHeartbeatResponse),
    (StreamsMember, StreamsGroupHeartbeatResponse),
]


class Coordinator:
    """Answers heartbeats in turn; None: no answer."""

    name = "one"

    def __init__(self, loop: SimLoop, answers: list[Any]) -> None:
        self.world = self
        self.loop = loop
        self.answers = answers
        self.heard: list[Any] = []

    async def coordinator(self, group: str, *, transactional: bool) -> int:
        return 0

    async def ask(self, node: int, request: Any, **given: Any) -> Any:
        self.heard.append(request)
        answer = self.answers.pop(0)
        if answer is None:
            raise UnansweredError
        return answer


@pytest.mark.parametrize("kind", KINDS, ids=["consumer", "streams"])
@pytest.mark.parametrize("code", [None, *sorted(WAITS)])
def test_after_a_failed_heartbeat_a_member_says_everything(code: int | None, kind: Any) -> None:
    """As Kafka's clients do: the refused request may have changed the assignment, and a member that
    does not send everything does not learn it again. After the rebalance timeout its partitions
    went to another member, while it continued to own them.
    """
    member_kind, answer_kind = kind
    good = answer_kind(member_epoch=2)
    failed = None if code is None else answer_kind(error_code=code)
    loop: Any = SimLoop(None)  # type: ignore[arg-type]
    client: Any = Coordinator(loop, [good, good, failed, good, good])
    member = member_kind(client, History(), "g", "t")

    async def story() -> None:
        for _ in range(5):
            await member.heartbeat()

    loop.run_until_complete(story())
    assert [each.rebalance_timeout_ms > 0 for each in client.heard] == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert member.epoch == 2, "it stays a member"
