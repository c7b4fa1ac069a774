"""HTTP responses about many partitions are built in turns."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.broker.partition_events import TopicCounts
from kstore.broker.http_api import _pieces, _topic_pieces
from kstore.broker.metrics.cluster import of_replica_manager
from kstore.broker.metrics.topics import LIMIT, SummedUp, of_partitions, of_topics
from kstore.broker.runtime import slices
from kstore.broker.runtime.controller.decisions import Decisions
from kstore.broker.runtime.replication.replicas import Hosted, Replicas
from kstore.broker.state.work import ROWS_BETWEEN, whole
from kstore.types import TopicPartition

COUNT = 10_000


def turns(pieces: Any) -> tuple[bytes, int]:
    """What comes, and how often other work on the loop had its turn meanwhile."""
    others = 0

    async def read() -> bytes:
        nonlocal others
        reading = asyncio.ensure_future(collect())
        while not reading.done():
            others += 1
            await asyncio.sleep(0)
        return await reading

    async def collect() -> bytes:
        return b"".join([piece async for piece in pieces])

    return asyncio.run(read()), others


@pytest.fixture(autouse=True)
def _no_slice_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)


def test_lines_that_are_long_in_coming_let_others_have_their_turn() -> None:
    told, others = turns(_pieces(iter(["a", *[""] * 500, "b"])))
    assert told == b"a\nb\n"
    assert others > 500


@pytest.mark.parametrize("seen", [range(0), range(1), range(300)])
def test_topics_are_told_in_turns_and_only_those_that_may_be_seen(seen: range) -> None:
    partition = SimpleNamespace(leader=1, leader_epoch=2, replicas=[1], isr=[1])
    topic = SimpleNamespace(topic_id=UUID(int=1), internal=False, partitions=[partition])
    names = [f"t{number:05}" for number in range(300)]
    topics: Any = dict.fromkeys(reversed(names), topic)
    told, others = turns(_topic_pieces(topics, lambda name: names.index(name) in seen))
    assert [row["name"] for row in json.loads(told)["topics"]] == [names[i] for i in seen]
    assert others > 300


def test_partitions_that_are_led_are_counted_in_steps() -> None:
    online: Any = SimpleNamespace(online=True, isr=(1,))
    hosted = {
        TopicPartition("t", index): Hosted(index % 2, 0, (0, 1), (1,), 0) for index in range(COUNT)
    }
    replicas: Any = SimpleNamespace(hosted=hosted, _node_id=1, find=lambda place: online)
    assert len(list(Replicas.gauges(replicas))) == COUNT // ROWS_BETWEEN
    assert whole(Replicas.gauges(replicas)) == {
        "led_partitions": COUNT // 2,
        "under_replicated_partitions": COUNT // 2,
    }


def test_a_controllers_partitions_are_counted_in_steps_though_topics_go_meanwhile() -> None:
    partitions = [SimpleNamespace(leader=leader, replicas=[1, 2]) for leader in (1, 2, -1)]
    topics = {f"t{number}": SimpleNamespace(partitions=partitions) for number in range(9)}
    state = SimpleNamespace(
        topics=topics, brokers={1, 2}, pieces=lambda names: ((name, range(3)) for name in names)
    )
    controller: Any = SimpleNamespace(state=state, epoch=7)
    work = Decisions.gauges(controller)
    next(work)
    del topics["t8"]
    assert whole(work) == {
        "controller_epoch": 7,
        "controller_live_brokers": 2,
        "controller_partitions": 24,
        "controller_offline_partitions": 8,
        "controller_not_preferred_leaders": 16,
    }


class Counted:
    """A partition that counts how often partitions are read."""

    looks = 0
    online = True
    failed = False
    insync_replicas = min_insync_replicas = 1
    replicas = isr = (1,)
    log_start_offset = log_end_offset = high_watermark = last_stable_offset = 0
    log = SimpleNamespace(size_bytes=1, core=SimpleNamespace(segments=[]))

    def __init__(self, index: int) -> None:
        self.index = index

    def __getattribute__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getattribute__(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit", [*(pytest.param(few, marks=pytest.mark.slow) for few in (0, 100)), COUNT]
)
def test_partitions_are_told_in_steps(limit: int) -> None:
    """Each turn of the loop reads only what takes a fraction of a millisecond."""
    entry = SimpleNamespace(
        name=b"t", counts=TopicCounts(), partitions=[Counted(index) for index in range(COUNT)]
    )
    broker: Any = SimpleNamespace(
        config={LIMIT: limit}, log_manager=SimpleNamespace(failed={}),
        table=SimpleNamespace(
            topics=lambda: [entry] * 3, counts=TopicCounts(),
            isr_shrinks=0, isr_expands=0, isr_refusals=0,
        ),
    )  # fmt: skip
    left_out = SummedUp()
    most = steps = 0
    for part in (
        of_partitions(broker, left_out), of_replica_manager(broker),
        of_topics(broker, left_out, by_name=True),
    ):  # fmt: skip
        Counted.looks = 0
        for _ in part:
            most = max(most, Counted.looks)
            Counted.looks = 0
            steps += 1
    assert most <= 10 * ROWS_BETWEEN
    assert steps > COUNT // ROWS_BETWEEN
    assert left_out.counts == {"partitions": 3 * COUNT - limit, "topics": 3 - min(limit, 3)}
