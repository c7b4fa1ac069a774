"""The consumer group protocol (KIP-848) as unmodified clients use it: members by librdkafka and by
Java, static ones, regular expressions, a broker that is killed, live groups that change protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.beside.waiting import until
from tests.conformance.broker_process import BrokerProcess
from tests.conformance.groups.test_groups import (
    Confluent,
    all_four,
    fill,
    group_tool,
    settle,
    split_evenly,
)
from tests.conformance.java.test_java_verifiable import consumers
from tests.conformance.kafka_broker import run_tool

SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
CONSUMER_PROTOCOL = {"group.protocol": "consumer"}


class Member(Confluent):
    """A member of the consumer protocol by confluent-kafka."""

    settings: Mapping[str, Any] = CONSUMER_PROTOCOL | {"topic.metadata.refresh.interval.ms": 1000}


def everything(members: list[Any]) -> set[bytes]:
    return {value for member in members for value in member.seen}


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_one_takes_over(
    broker: BrokerProcess, topic: str, assignor: str
) -> None:
    more = {"group.remote.assignor": assignor}
    values = fill(broker.bootstrap, topic)
    first = Member(broker.bootstrap, topic, **more)
    settle([first], all_four)
    second = Member(broker.bootstrap, topic, **more)
    settle([first, second], split_evenly)
    settle([first, second], lambda _: everything([first, second]) == values)
    first.commit()
    first.close()
    settle([second], all_four)
    second.commit()
    second.close()
    after = Member(broker.bootstrap, topic)
    settle([after], all_four)
    later = fill(broker.bootstrap, topic, "later")
    settle([after], lambda _: set(after.seen) >= later)
    after.close()


def test_a_static_member_that_restarts_disturbs_nobody(broker: BrokerProcess, topic: str) -> None:
    fill(broker.bootstrap, topic)
    static = [
        Member(broker.bootstrap, topic, **{"group.instance.id": name}) for name in ("s1", "s2")
    ]
    before = settle(static, split_evenly)
    rebalances = static[1].rebalances
    static[0].close()
    again = Member(broker.bootstrap, topic, **{"group.instance.id": "s1"})
    assert settle([again, static[1]], split_evenly) == before
    assert static[1].rebalances == rebalances
    again.close()
    static[1].close()


def test_a_regular_expression_finds_the_topics(broker: BrokerProcess, topic: str) -> None:
    values = fill(broker.bootstrap, f"{topic}-one")
    fill(broker.bootstrap, f"no-{topic}")
    member = Member(broker.bootstrap, topic, f"^{topic}-.*")
    settle([member], lambda _: set(member.seen) == values)
    assert {part.topic for part in member.consumer.assignment()} == {f"{topic}-one"}
    member.close()


@pytest.mark.slow
def test_a_group_goes_on_when_its_broker_was_killed(own_broker: BrokerProcess, topic: str) -> None:
    values = fill(own_broker.bootstrap, topic)
    members = [Member(own_broker.bootstrap, topic) for _ in range(2)]
    settle(members, split_evenly)
    settle(members, lambda _: everything(members) == values)
    for member in members:
        member.commit()
    third = Member(own_broker.bootstrap, topic)  # a rebalance is on when it dies
    third.step()
    own_broker.kill()
    own_broker.start()
    members.append(third)
    settle(members, lambda held: sorted(map(len, held)) == [1, 1, 2])
    more = fill(own_broker.bootstrap, topic, "later")
    settle(members, lambda _: everything(members) >= more)
    for member in members:
        member.commit()
        member.close()


def test_a_live_group_is_upgraded_and_downgraded(broker: BrokerProcess, topic: str) -> None:
    values = fill(broker.bootstrap, topic)
    classic = Confluent(
        broker.bootstrap, topic, **{"partition.assignment.strategy": "cooperative-sticky"}
    )
    settle([classic], all_four)
    settle([classic], lambda _: set(classic.seen) == values)
    classic.commit()
    new = Member(broker.bootstrap, topic)
    settle([classic, new], split_evenly)
    more = fill(broker.bootstrap, topic, "mixed")
    settle([classic, new], lambda _: everything([classic, new]) >= more)
    assert not set(new.seen) & values, "what was committed is not read again"
    classic.commit()
    new.commit()
    new.close()
    settle([classic], all_four)
    last = fill(broker.bootstrap, topic, "last")
    settle([classic], lambda _: set(classic.seen) >= last)
    classic.commit()
    classic.close()


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_jars")
class TestJava:
    """Java's consumers and Kafka's group tool."""

    def test_the_group_tool_shows_members_and_state(
        self, broker: BrokerProcess, topic: str
    ) -> None:
        fill(broker.bootstrap, topic)
        group = f"g-{topic}"
        member = Member(broker.bootstrap, topic, **{"group.instance.id": "s1"})
        settle([member], all_four)
        settle([member], lambda _: len(member.seen) == 40)
        member.commit()
        assert group in group_tool(broker, "--list", "--type", "consumer")
        assert group not in group_tool(broker, "--list", "--type", "classic")
        state = group_tool(broker, "--describe", "--group", group, "--state", "--verbose")
        (row,) = [line.split() for line in state.splitlines() if line.startswith(group)]
        assert {"uniform", "Stable", "2"} <= set(row), state
        shown = group_tool(broker, "--describe", "--group", group, "--members", "--verbose")
        (row,) = [line.split() for line in shown.splitlines() if line.startswith(group)]
        assert {"s1", "4", f"{topic}:0,1,2,3"} <= set(row), shown
        offsets = group_tool(broker, "--describe", "--group", group)
        rows = [line.split() for line in offsets.splitlines() if line.startswith(group)]
        assert {(row[2], row[3]) for row in rows} == {(str(n), "10") for n in range(4)}
        member.close()

    def test_the_console_consumer_reads_with_the_new_protocol(
        self, broker: BrokerProcess, topic: str
    ) -> None:
        values = fill(broker.bootstrap, topic)
        args = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning"]
        args += ["--max-messages", "40", "--timeout-ms", "60000", "--group", f"g-{topic}"]
        args += ["--command-property", "group.protocol=consumer"]
        done = run_tool("kafka-console-consumer", args)
        assert {line.encode() for line in done.stdout.split()} == values
        group = group_tool(broker, "--describe", "--group", f"g-{topic}", "--offsets")
        assert group.count("10") >= 4, group

    def test_java_consumers_of_both_protocols_are_one_group(
        self, broker: BrokerProcess, topic: str
    ) -> None:
        fill(broker.bootstrap, topic)
        new, old = ["--group-protocol", "consumer"], ["--group-protocol", "classic"]
        with consumers(broker, topic, old) as (classic,):
            until(lambda: classic.held() == {0, 1, 2, 3}, "the classic member")
            with consumers(broker, topic, new) as (joined,):

                def shared() -> bool:
                    held = classic.held(), joined.held()
                    return [len(part) for part in held] == [2, 2] and not held[0] & held[1]

                until(shared, f"{classic.held()} {joined.held()}")
                assert f"g-{topic}" in group_tool(broker, "--list", "--type", "consumer")
                fill(broker.bootstrap, topic, "mixed")
                until(lambda: len(set(classic.values() + joined.values())) == 80, "all records")
            until(lambda: classic.held() == {0, 1, 2, 3}, "the classic member, alone again")
            assert f"g-{topic}" in group_tool(broker, "--list", "--type", "classic")
