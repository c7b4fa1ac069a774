"""Two sides of a replication: a broker and the requests to it, and a replicator that continues."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from kstore.clients.replicator import Event, ReplicationOptions, Replicator
from kstore.record import build_batch, decode
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, only, produce_request

TIME = 1_700_000_000_000
SETTINGS = {"kstore.check.invariants": "true", "group.initial.rebalance.delay.ms": "0"}
Told = tuple[int, int, bytes | None, bytes | None, tuple[Any, ...]]


def log_bytes(log_dir: Path, name: str, index: int = 0) -> bytes:
    """The bytes of a partition's segments, one after the other."""
    files = sorted((log_dir / f"{name}-{index}").glob("*.log"))
    return b"".join(each.read_bytes() for each in files)


class Side(TopicClient):
    """One broker, and what is asked of it."""

    def __init__(self, broker: KstoreBroker) -> None:
        super().__init__(broker)
        self.bootstrap = broker.bootstrap
        self.log_dir = broker.log_dir

    def log_bytes(self, name: str, index: int = 0) -> bytes:
        return log_bytes(self.log_dir, name, index)

    def write(self, name: str, rows: list[Any], *, at: int = -1, index: int = 0, **how: Any) -> int:
        """A batch at the log's end, or at the offset given; its base offset."""
        data = build_batch(rows, timestamp=TIME, base_offset=max(at, 0), **how)
        request = produce_request(name, data, first=index, acks=-1, use_offset=at >= 0)
        row = only(self.call(request, 12))
        assert row.error_code == 0, row
        return int(row.base_offset)

    def read(self, name: str, index: int = 0) -> list[Told]:
        end = self.list_offsets(name, index).offset
        found: list[Told] = []
        position = 0
        while position < end:
            row = self._fetched(name, index, position)
            if row.error_code == 1:  # out of range: the log begins later
                position = row.log_start_offset
                continue
            aborted = [(t.producer_id, t.first_offset) for t in row.aborted_transactions or ()]
            records = decode(row.records or b"", start_offset=position, aborted=aborted)
            found += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
            position = records.next_offset or end
        return found

    def _fetched(self, name: str, index: int, position: int) -> Any:
        request = fetch_request(name, fetch_part(position, index), isolation_level=1)
        return only(self.call(request, 12))

    def configs(self, name: str) -> dict[str, str]:
        """What is set on the topic itself."""
        row = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
        [result] = self.call(Ask.DescribeConfigs(resources=[row])).results
        return {entry.name: entry.value for entry in result.configs if entry.config_source == 1}

    def set_topic(self, name: str, **configs: str | None) -> None:
        answer = self.configure(2, name, **configs)
        assert answer.error_code == 0, answer

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        rows = [{"group_id": group, "topics": None}]
        [found] = self.call(Ask.OffsetFetch(groups=rows), 8).groups
        return {
            (topic.name, row.partition_index): row.committed_offset
            for topic in found.topics
            for row in topic.partitions
        }

    def delete_before(self, name: str, offset: int) -> None:
        part = {"partition_index": 0, "offset": offset}
        topic = {"name": name, "partitions": [part]}
        answer = self.call(Ask.DeleteRecords(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].partitions[0].error_code == 0, answer


def replicator(
    source: Side, target: Side, topic: str, events: list[Event] | None = None, **options: Any
) -> Replicator:
    """It copies the topics that match, and reports to ``events``."""
    asked = ReplicationOptions(re.compile(topic), **options)
    settings = [{"bootstrap.servers": side.bootstrap} for side in (source, target)]
    return Replicator(*settings, asked, None if events is None else events.append)


def copy(source: Side, target: Side, topic: str, **options: Any) -> Replicator:
    made = replicator(source, target, topic, **options)
    asyncio.run(made.run(until_caught_up=True))
    return made


class Running:
    """A replicator that runs in a thread."""

    def __init__(self, made: Callable[[], Replicator]) -> None:
        self._made = made
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._made().run())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    def _stop(self) -> None:
        self._task.cancel()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[KstoreBroker, KstoreBroker]]:
    """A source and a target for all tests of a module."""
    folder = tmp_path_factory.mktemp("sides")
    with (
        KstoreBroker(folder / "source", overrides=SETTINGS) as one,
        KstoreBroker(folder / "target", overrides=SETTINGS) as other,
    ):
        yield one, other


@pytest.fixture
def source(brokers: tuple[KstoreBroker, KstoreBroker]) -> Iterator[Side]:
    yield from _side(brokers[0])


@pytest.fixture
def target(brokers: tuple[KstoreBroker, KstoreBroker]) -> Iterator[Side]:
    yield from _side(brokers[1])


def _side(broker: KstoreBroker) -> Iterator[Side]:
    side = Side(broker)
    yield side
    side.sock.close()
