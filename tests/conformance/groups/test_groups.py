"""Consumer groups as unmodified clients use them: several members, of one library and of two,
static members, a broker that is killed, and Kafka's own group tool.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.beside.librdkafka import consumer_of, make_topics, write_all
from tests.conformance.broker_process import BrokerProcess
from tests.conformance.kafka_broker import ask_tool
from tests.conformance.libraries.python_clients import Client

DEADLINE_S = 60.0
SESSION_MS = 6000
SETTINGS = {"group.initial.rebalance.delay.ms": "200"}


class Synchronous:
    """A member whose client has calls that wait."""

    consumer: Any

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class Confluent(Synchronous):
    settings: Mapping[str, Any] = {
        "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": "range",
    }  # fmt: skip

    def __init__(self, bootstrap: str, topic: str, subscribed: str = "", **more: Any) -> None:
        self.rebalances = 0
        self.seen: list[bytes] = []
        self.consumer = consumer_of(bootstrap, f"g-{topic}", self.settings | more)
        self.consumer.subscribe([subscribed or topic], on_assign=self._assigned)

    def _assigned(self, consumer: Any, partitions: Any) -> None:
        self.rebalances += 1

    def step(self) -> set[int]:
        """Poll once; the partitions it has now."""
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.seen.append(message.value())
        return {partition.partition for partition in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)


class KafkaPython(Synchronous):
    def __init__(self, bootstrap: str, topic: str) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        self.seen: list[bytes] = []
        self.consumer = KafkaConsumer(
            topic,
            **Client(bootstrap).reader_keywords(f"g-{topic}"),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[RangePartitionAssignor],
        )

    def step(self) -> set[int]:
        for records in self.consumer.poll(50).values():
            self.seen += [record.value for record in records]
        return {partition.partition for partition in self.consumer.assignment()}


class AioKafka:
    """A member with aiokafka, on a separate loop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: list[bytes] = []
        self.loop = asyncio.new_event_loop()
        self.consumer: Any = None
        self.loop.run_until_complete(self._start(bootstrap, topic))

    async def _start(self, bootstrap: str, topic: str) -> None:
        from aiokafka import AIOKafkaConsumer

        self.consumer = AIOKafkaConsumer(
            topic,
            **Client(bootstrap).reader_keywords(f"g-{topic}"),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=1000,
        )
        # start() waits for an assignment, which needs the other members to go on.
        self.starting = asyncio.ensure_future(self.consumer.start())

    def step(self) -> set[int]:
        return self.loop.run_until_complete(self._step())

    async def _step(self) -> set[int]:
        if not self.starting.done():
            await asyncio.wait({self.starting}, timeout=0.05)
            return set()
        await self.starting
        for records in (await self.consumer.getmany(timeout_ms=50)).values():
            self.seen += [record.value for record in records]
        return {partition.partition for partition in self.consumer.assignment()}

    def commit(self) -> None:
        self.loop.run_until_complete(self.consumer.commit())

    def close(self) -> None:
        self.loop.run_until_complete(self.consumer.stop())
        self.loop.close()


def settle(members: list[Any], wanted: Callable[[list[set[int]]], bool]) -> list[set[int]]:
    """Let the members poll until their partitions are as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        held = [member.step() for member in members]
        if wanted(held):
            return held
        assert time.monotonic() < deadline, f"still {held}"


def split_evenly(held: list[set[int]]) -> bool:
    return sorted(map(len, held)) == [2, 2] and not held[0] & held[1]


def all_four(held: list[set[int]]) -> bool:
    return held == [{0, 1, 2, 3}]


def fill(bootstrap: str, topic: str, prefix: str = "r") -> set[bytes]:
    """Make the topic of four partitions with ten records in each."""
    from confluent_kafka.admin import AdminClient

    if topic not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics:
        make_topics(bootstrap, topic, partitions=4)
    values = {b"%s-%d" % (prefix.encode(), number) for number in range(40)}
    write_all(bootstrap, topic, sorted(values), range(4))
    return values


def group_tool(broker: BrokerProcess, *args: str) -> str:
    return ask_tool(broker, "kafka-consumer-groups", *args).stdout


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    "kinds",
    [(Confluent, Confluent), (KafkaPython, KafkaPython), (AioKafka, AioKafka)],
    ids=["confluent-kafka", "kafka-python", "aiokafka"],
)
def test_two_members_share_the_partitions_and_one_takes_over(
    broker: BrokerProcess, topic: str, kinds: tuple[Any, Any]
) -> None:
    values = fill(broker.bootstrap, topic)
    first = kinds[0](broker.bootstrap, topic)
    settle([first], all_four)
    second = kinds[1](broker.bootstrap, topic)
    settle([first, second], split_evenly)
    first.close()
    settle([second], all_four)
    settle([second], lambda _: set(second.seen) == values)
    second.commit()
    second.close()

    after = kinds[0](broker.bootstrap, topic)
    settle([after], all_four)
    more = fill(broker.bootstrap, topic, "later")
    settle([after], lambda _: set(after.seen) >= more)
    assert set(after.seen) == more, "what was committed is not read again"
    after.close()


def test_members_of_two_libraries_are_one_group(broker: BrokerProcess, topic: str) -> None:
    fill(broker.bootstrap, topic)
    members = [Confluent(broker.bootstrap, topic), KafkaPython(broker.bootstrap, topic)]
    settle(members, split_evenly)
    members[0].close()
    settle(members[1:], all_four)
    members[1].close()


def test_a_static_member_that_restarts_disturbs_nobody(broker: BrokerProcess, topic: str) -> None:
    fill(broker.bootstrap, topic)
    static = [
        Confluent(broker.bootstrap, topic, **{"group.instance.id": name}) for name in ("s1", "s2")
    ]
    before = settle(static, split_evenly)
    rebalances = static[1].rebalances
    static[0].close()
    again = Confluent(broker.bootstrap, topic, **{"group.instance.id": "s1"})
    held = settle([again, static[1]], split_evenly)
    assert held == before
    assert static[1].rebalances == rebalances
    again.close()
    static[1].close()


def test_cooperative_members_move_only_what_must_move(broker: BrokerProcess, topic: str) -> None:
    fill(broker.bootstrap, topic)
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    first = Confluent(broker.bootstrap, topic, **cooperative)
    settle([first], all_four)
    second = Confluent(broker.bootstrap, topic, **cooperative)
    settle([first, second], split_evenly)
    first.close()
    second.close()


@pytest.mark.slow
def test_a_group_goes_on_when_its_broker_was_killed(own_broker: BrokerProcess, topic: str) -> None:
    values = fill(own_broker.bootstrap, topic)
    members = [Confluent(own_broker.bootstrap, topic) for _ in range(2)]
    settle(members, split_evenly)
    settle(members, lambda _: {value for member in members for value in member.seen} == values)
    for member in members:
        member.commit()
    own_broker.kill()
    own_broker.start()
    more = fill(own_broker.bootstrap, topic, "later")
    settle(
        members,
        lambda held: (
            split_evenly(held) and {value for member in members for value in member.seen} >= more
        ),
    )
    assert sum(len(member.seen) for member in members) == len(values) + len(more)
    for member in members:
        member.close()


@pytest.mark.java
@pytest.mark.slow
def test_kafkas_group_tool_lists_describes_resets_and_deletes(
    broker: BrokerProcess, topic: str, kafka_jars: Any
) -> None:
    fill(broker.bootstrap, topic)
    group = f"g-{topic}"
    member = Confluent(broker.bootstrap, topic)
    settle([member], all_four)
    settle([member], lambda _: len(member.seen) == 40)
    member.commit()

    tool = partial(group_tool, broker)
    assert group in tool("--list", "--state")
    described = tool("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert {(row[2], row[3], row[5]) for row in rows} == {(str(n), "10", "0") for n in range(4)}
    assert "Stable" in tool("--describe", "--group", group, "--state")
    member.close()
    tool("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "4", "--execute")
    described = tool("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert {row[3] for row in rows} == {"4"}
    tool("--delete-offsets", "--group", group, "--topic", topic)
    tool("--delete", "--group", group)
    assert group not in tool("--list")
