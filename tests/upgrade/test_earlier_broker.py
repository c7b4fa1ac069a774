"""A broker of 0.1.0, which knows no contractions, among brokers that do: it can do no harm.

The earlier side is the Python in KSTORE_OLD_PYTHON, one with kstore 0.1.0 installed, if it is set;
else this checkout, which reads and writes the coordination store as 0.1.0 does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.znodes import read_topic
from kstore.broker_process import serve_command
from kstore.clients import AdminClient, NewTopic, Producer
from kstore.errors import UnknownTopicOrPartitionError
from kstore.testing import brokers
from kstore.testing.brokers import BrokerError, Cluster
from kstore.types import TopicPartition
from tests.beside.waiting import until

pytestmark = pytest.mark.slow

OLD_PYTHON = os.environ.get("KSTORE_OLD_PYTHON", "")
EARLIER = Path(__file__).with_name("earlier_version.py")
CONFIGS = {"kstore.partition.count.required": "true", "kstore.ordered.expansion": "true"}
SETTINGS = {
    "log.retention.check.interval.ms": 100,
    "kstore.coordination.session.timeout.ms": 1000,
}


def earlier_command(*arguments: str) -> list[str]:
    command = serve_command(*arguments)
    if OLD_PYTHON:
        return [OLD_PYTHON, *command[1:]]
    at = command.index("-m")
    return [*command[:at], str(EARLIER), *command[at + 2 :]]


class World:
    """Three brokers, and a topic with a record in each of its three partitions."""

    def __init__(self, cluster: Cluster, store: LmdbStore) -> None:
        self.cluster = cluster
        self.store = store
        self.older = cluster[3]
        servers = ",".join(cluster[node].address for node in (1, 2))
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic("orders", 3, 3, configs=CONFIGS)])
        with Producer({"bootstrap.servers": servers}) as producer:
            for partition in range(3):
                producer.send("orders", b"before", partition=partition).result()
        self.until_in_sync(1, 2, 3)

    def until_in_sync(self, *nodes: int) -> None:
        def in_sync() -> bool:
            topic = read_topic(self.store, "orders")
            return all(set(each.isr) == set(nodes) for each in topic.partitions)

        until(in_sync, f"these are in sync, and no others: {nodes}")

    def empty(self) -> None:
        """Nothing is left in what has retired, which is deleted then: perhaps before the answer."""
        with suppress(UnknownTopicOrPartitionError):
            self.admin.delete_records({TopicPartition("orders", index): -1 for index in (1, 2)})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with (
        Cluster(tmp_path, 3, SETTINGS) as cluster,
        closing(LmdbStore(tmp_path / "coordination", shared=True)) as store,
    ):
        made = World(cluster, store)
        with made.admin:
            yield made


def test_a_broker_of_an_earlier_version_does_not_start_while_a_topic_shrinks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.admin.create_partitions("orders", 1, may_shrink=True)
    world.older.shut_down()
    monkeypatch.setattr(brokers, "serve_command", earlier_command)
    with pytest.raises(BrokerError, match=r"needs kstore\.contractions: upgrade this broker"):
        world.older.start()
    world.until_in_sync(1, 2)
    world.empty()

    def starts() -> bool:
        with suppress(BrokerError):
            world.older.start()
        return world.older.pid is not None

    until(starts, "nothing shrinks any more")
    world.until_in_sync(1, 2, 3)


def test_a_broker_of_an_earlier_version_that_comes_back_takes_no_part_while_a_topic_shrinks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.older.shut_down()
    monkeypatch.setattr(brokers, "serve_command", earlier_command)
    world.older.start()
    monkeypatch.undo()
    world.until_in_sync(1, 2, 3)
    world.older.pause()
    world.until_in_sync(1, 2)
    world.admin.create_partitions("orders", 1, may_shrink=True)
    world.older.resume()
    until(
        lambda: "needs kstore.contractions: upgrade this broker" in world.older.output(),
        "it has read so",
    )
    for node in (1, 2):  # one of them is the controller
        world.cluster[node].kill()
        world.until_in_sync(3 - node)
        world.cluster[node].start()
        world.until_in_sync(1, 2)
    world.empty()
    world.until_in_sync(1, 2, 3)
    assert world.older.pid is not None
