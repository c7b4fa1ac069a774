"""Consumers in groups: listeners, automatic commits, both protocols, sync and asyncio."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kstore.clients import (
    AdminClient,
    AIOConsumer,
    Assignor,
    Consumer,
    NewTopic,
    Producer,
    Subscription,
)
from kstore.clients.io.handover import RebalanceListener
from kstore.config.definition import ConfigError
from kstore.errors import CommitFailedError, GroupMaxSizeReachedError
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import until
from tests.clients.io.test_groups import PROTOCOLS
from tests.clients.io.test_groups import SETTINGS as QUICK_GROUPS
from tests.conformance.kstore_broker import KstoreBroker

PATIENCE_S = 60
SETTINGS = QUICK_GROUPS | {"group.max.size": "3", "group.consumer.max.size": "3"}
QUICK: dict[str, object] = {
    "auto_offset_reset": "earliest",
    "metadata_max_age_ms": 500,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
}
BEATS = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}
_names = itertools.count(1)


class Place:
    """A topic with records 0 to 9 in each partition, and a group."""

    def __init__(self, bootstrap: str, partitions: int, protocol: str) -> None:
        name = f"c{next(_names)}"
        self.bootstrap, self.topic, self.group_id = bootstrap, name, f"g-{name}"
        self.settings = QUICK | PROTOCOLS[protocol] | ({} if protocol == "consumer" else BEATS)
        with AdminClient(bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions)])
        with Producer(bootstrap) as producer:
            for index in range(partitions):
                for number in range(10):
                    producer.send(name, b"%d" % number, partition=index)

    def tps(self, *indexes: int) -> set[TopicPartition]:
        return {TopicPartition(self.topic, index) for index in indexes}

    def consumer(self, listener: Any = None, **settings: Any) -> Consumer:
        consumer = Consumer(self.bootstrap, group_id=self.group_id, **(self.settings | settings))
        consumer.subscribe([self.topic], listener)
        return consumer

    def committed(self) -> dict[int, int]:
        settings = {"enable_auto_commit": False} | QUICK
        with Consumer(self.bootstrap, group_id=self.group_id, **settings) as outsider:
            rows = outsider.committed(self.tps(0, 1))
        return {tp.partition: row.offset for tp, row in rows.items() if row is not None}


@pytest.fixture(params=sorted(PROTOCOLS))
def place(request: pytest.FixtureRequest, broker: KstoreBroker) -> Place:
    """Two partitions, in each protocol."""
    return Place(broker.bootstrap, 2, request.param)


class Listener(RebalanceListener):
    """Records its callbacks and their threads."""

    def __init__(self) -> None:
        self.events: list[tuple[str, set[TopicPartition]]] = []
        self.threads: set[str] = set()

    def _note(self, kind: str, partitions: Collection[TopicPartition]) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append((kind, set(partitions)))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note("lost", lost)


def poll_until(condition: Callable[[], object], *consumers: Consumer) -> list[Any]:
    """Poll all in turn until a condition holds; returns the records."""
    end = time.monotonic() + PATIENCE_S
    records = []
    while not condition():
        assert time.monotonic() < end
        for consumer in consumers:
            records += consumer.poll(20)
    return records


def read(count: int, *consumers: Consumer) -> list[tuple[int, int]]:
    """(partition, offset) of this number of records, in order."""
    seen: list[tuple[int, int]] = []
    end = time.monotonic() + PATIENCE_S
    while len(seen) < count and time.monotonic() < end:
        for consumer in consumers:
            seen += [(record.partition, record.offset) for record in consumer.poll(20)]
    return sorted(seen)


EVERYTHING = [(index, offset) for index in range(2) for offset in range(10)]


def test_two_consumers_read_everything_once(place: Place) -> None:
    with place.consumer() as first, place.consumer() as second:
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)
        for consumer in (first, second):
            consumer.seek_to_beginning()
        assert read(20, first, second) == EVERYTHING


def test_the_next_consumer_goes_on_where_the_last_one_closed(place: Place) -> None:
    with place.consumer(max_poll_records=3) as first:
        before = read(6, first)
    with place.consumer() as second:
        assert sorted(before + read(14, second)) == EVERYTHING


def test_listeners_run_in_the_polling_thread_and_in_order(place: Place) -> None:
    listener = Listener()
    with place.consumer(listener) as first:
        assert not listener.events
        poll_until(lambda: listener.events, first)
        assert listener.events == [("assigned", place.tps(0, 1))]
        with place.consumer() as second:
            poll_until(lambda: len(second.assignment()) == 1, first, second)
        poll_until(lambda: len(first.assignment()) == 2, first)
    assert listener.events[-1] == ("revoked", place.tps(0, 1))
    assert listener.threads == {threading.current_thread().name}
    held: set[TopicPartition] = set()
    for kind, partitions in listener.events:
        assert partitions.isdisjoint(held) if kind == "assigned" else partitions <= held
        held = held | partitions if kind == "assigned" else held - partitions


def test_what_a_listener_raises_is_raised_by_poll_and_the_rebalance_goes_on(place: Place) -> None:
    class Broken(RebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            raise LookupError("mine")

    with place.consumer(Broken()) as consumer:
        with pytest.raises(LookupError, match="mine"):
            poll_until(lambda: False, consumer)
        assert read(20, consumer) == EVERYTHING


def test_closing_commits_what_was_polled(place: Place) -> None:
    with place.consumer() as consumer:
        assert read(20, consumer) == EVERYTHING
    assert place.committed() == {0: 10, 1: 10}


def test_nothing_is_committed_by_itself_when_that_is_off(place: Place) -> None:
    with place.consumer(enable_auto_commit=False) as consumer:
        assert read(20, consumer) == EVERYTHING
    assert place.committed() == {}


def test_the_automatic_commit_takes_only_what_was_there_before_the_last_poll(place: Place) -> None:
    with place.consumer(auto_commit_interval_ms=1, max_poll_records=4) as consumer:
        while not (records := consumer.poll(20)):
            pass
        assert len(records) <= 4
        assert place.committed().get(records[0].partition, 0) == 0
        poll_until(place.committed, consumer)


def test_iterating_for_long_is_polling(place: Place) -> None:
    with place.consumer(max_poll_interval_ms=600, auto_commit_interval_ms=100) as consumer:
        for count, _ in enumerate(consumer, 1):
            time.sleep(0.1)
            if count == 15:
                break
        assert len(consumer.assignment()) == 2
        consumer.commit()


def test_a_commit_after_polling_too_late_fails(place: Place) -> None:
    with place.consumer(max_poll_interval_ms=300) as consumer:
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        until(lambda: consumer.group_metadata().generation_id == -1)
        with pytest.raises(CommitFailedError):
            consumer.commit({TopicPartition(place.topic, 0): 1})


def test_commits_without_waiting_tell_a_callback_in_poll(place: Place) -> None:
    told: list[Any] = []
    with place.consumer(enable_auto_commit=False) as consumer:
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        offsets = {TopicPartition(place.topic, 0): OffsetAndMetadata(3)}
        consumer.commit_async(offsets, lambda *what: told.append(what))
        poll_until(lambda: told, consumer)
    assert told == [(offsets, None)]
    assert place.committed() == {0: 3}


def test_leaving_and_coming_back(place: Place) -> None:
    listener = Listener()
    with place.consumer(listener) as consumer:
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        consumer.unsubscribe()
        assert consumer.assignment() == []
        assert listener.events[-1] == ("revoked", place.tps(0, 1))
        consumer.subscribe([place.topic], listener)
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)


def test_a_regular_expression_finds_topics_that_come_to_be(place: Place) -> None:
    with Consumer(place.bootstrap, group_id=place.group_id, **place.settings) as consumer:
        consumer.subscribe(re.compile(f"{place.topic}(-more)?"))
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        with AdminClient(place.bootstrap) as admin:
            admin.create_topics([f"{place.topic}-more"])
        poll_until(lambda: len(consumer.assignment()) > 2, consumer)


def test_a_full_group_is_an_error_of_poll(place: Place) -> None:
    three = [place.consumer() for _ in range(3)]
    try:
        with AdminClient(place.bootstrap) as admin:
            admin.create_partitions(place.topic, 3)
        poll_until(lambda: all(len(one.assignment()) == 1 for one in three), *three)
        with place.consumer() as fourth, pytest.raises(GroupMaxSizeReachedError):
            poll_until(lambda: False, fourth, *three)
    finally:
        for consumer in three:
            consumer.close()


def test_the_group_metadata_is_that_of_the_member(place: Place) -> None:
    with place.consumer() as consumer:
        before = consumer.group_metadata()
        assert (before.generation_id, before.member_id) == (-1, "")
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        found = consumer.group_metadata()
        assert found.generation_id > 0
        assert found.member_id


class Everything(Assignor):
    """The first member by id gets everything."""

    name = "everything"

    def assign(self, partition_counts: Any, members: Any) -> Any:
        first = min(members)
        assert isinstance(members[first], Subscription)
        return {
            first: [
                TopicPartition(topic, index)
                for topic, count in partition_counts.items()
                for index in range(count)
            ]
        }


def test_an_assignor_of_the_users_own(broker: KstoreBroker) -> None:
    place = Place(broker.bootstrap, 2, "range")
    strategy = {"partition_assignment_strategy": [Everything()]}
    with place.consumer(**strategy) as first, place.consumer(**strategy) as second:
        both = (first, second)
        poll_until(lambda: first.group_metadata().generation_id == 2, *both)
        poll_until(lambda: sorted(len(one.assignment()) for one in both) == [0, 2], *both)


def test_an_unknown_assignor_is_refused(broker: KstoreBroker) -> None:
    with pytest.raises(ConfigError, match="'uniform' is not one of range"):
        Consumer(broker.bootstrap, group_id="g", partition_assignment_strategy="uniform")


def test_asyncio_listeners_are_awaited_inside_poll(place: Place) -> None:
    async def scene() -> list[str]:
        events: list[str] = []

        class Slow(RebalanceListener):
            async def on_partitions_assigned(self, assigned: Any) -> None:
                await asyncio.sleep(0)
                events.append("assigned")

            async def on_partitions_revoked(self, revoked: Any) -> None:
                await consumer.commit(dict.fromkeys(revoked, 7))
                events.append("revoked")

        settings = place.settings | {"enable_auto_commit": False}
        consumer = AIOConsumer(place.bootstrap, group_id=place.group_id, **settings)
        async with consumer:
            consumer.subscribe([place.topic], Slow())
            while not events:
                await consumer.poll(20)
        return events

    events = asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert events == ["assigned", "revoked"]
    assert place.committed() == {0: 7, 1: 7}
