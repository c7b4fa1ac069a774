"""A cluster is upgraded broker by broker under load, and back: no acknowledged record is lost, none
is there twice, and clients see no error.

There is one release so far. The old side is the Python in KSTORE_OLD_PYTHON, one with an earlier
kstore installed, if it is set; else this checkout. The new side is this checkout, telling of one
version more of each API than there is, as the next release may.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kstore.broker_process import serve_command
from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.testing import brokers
from kstore.testing.brokers import Cluster
from kstore.types import TopicPartition
from tests.beside.worker import Worker

pytestmark = pytest.mark.slow

OLD_PYTHON = os.environ.get("KSTORE_OLD_PYTHON", "")
NEXT = Path(__file__).with_name("next_version.py")
PLACE = TopicPartition("orders", 0)


def old_command(*arguments: str) -> list[str]:
    command = serve_command(*arguments)
    return [OLD_PYTHON or command[0], *command[1:]]


def new_command(*arguments: str) -> list[str]:
    command = serve_command(*arguments)
    at = command.index("-m")
    return [*command[:at], str(NEXT), *command[at + 2 :]]


class Load(Worker):
    """Records one after the other, each acknowledged by all replicas in sync."""

    def __init__(self, servers: str) -> None:
        super().__init__("load")
        self.servers = servers
        self.acknowledged = 0

    def wait_for(self, more: int) -> None:
        wanted = self.acknowledged + more
        while self.acknowledged < wanted:
            assert self.is_alive()
            time.sleep(0.01)

    def work(self) -> None:
        with Producer({"bootstrap.servers": self.servers, "acks": "all"}) as producer:
            while not self.stopping.is_set():
                producer.send("orders", b"%d" % self.acknowledged, partition=0).result()
                self.acknowledged += 1


def wait_in_sync(servers: str) -> None:
    with AdminClient({"bootstrap.servers": servers}) as admin:
        while any(
            len(partition.isr) < len(partition.replicas)
            for topic in admin.describe_topics() for partition in topic.partitions
        ):  # fmt: skip
            time.sleep(0.05)


def test_a_cluster_is_upgraded_and_taken_back_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "serve_command", old_command)
    with Cluster(tmp_path, 3) as cluster:
        servers = cluster.bootstrap_servers
        with AdminClient({"bootstrap.servers": servers}) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
            before = admin.describe_api_versions()
        with Load(servers) as load:
            load.wait_for(20)
            for command in (new_command, old_command):
                monkeypatch.setattr(brokers, "serve_command", command)
                for broker in cluster:
                    wait_in_sync(servers)
                    broker.shut_down()
                    broker.start()
                    load.wait_for(10)
                with AdminClient({"bootstrap.servers": servers}) as admin:
                    now = admin.describe_api_versions()
                assert (now == before) == (command is old_command)
        assert load.problem is None
        with Consumer({"bootstrap.servers": servers}) as consumer:
            consumer.assign([PLACE])
            consumer.seek_to_beginning(PLACE)
            found: list[bytes] = []
            while len(found) < load.acknowledged:
                found += [record.value for record in consumer.poll(0.5)]
        assert found == [b"%d" % number for number in range(load.acknowledged)]
