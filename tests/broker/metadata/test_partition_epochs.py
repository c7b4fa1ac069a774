"""Partition epochs (KIP-232) through a socket: a recreated topic is never taken for the old one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from kstore.broker.coordination import znodes
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.partition_nodes import PARTITION_EPOCH, max_partition_epoch
from kstore.broker.coordination.store import Create
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.errors import ErrorCode
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.record_requests import fetch_request

Start = Callable[..., KstoreBroker]


def store_of(broker: KstoreBroker) -> LmdbStore:
    """The store of a broker that is stopped."""
    return LmdbStore(broker.log_dir / ".coordination")


@pytest.fixture
def client(broker: KstoreBroker) -> TopicClient:
    return TopicClient(broker)


def test_metadata_fetch_and_list_offsets_tell_the_epoch(client: TopicClient) -> None:
    client.create("a", 2)
    client.create("b")
    assert (client.epochs("a"), client.epochs("b")) == ([1, 2], [3])
    assert client.metadata("a").max_partition_epoch == 3
    client.grow("a", 3)
    assert client.epochs("a") == [1, 2, 4]
    assert client.fetch("a", 1).responses[0].partitions[0].partition_epoch == 2
    assert client.list_offsets("a", 2).partition_epoch == 4
    assert client.list_offsets("a", 3).partition_epoch == -1, "it does not exist"


def test_versions_without_tags_have_no_epoch(client: TopicClient) -> None:
    client.create("a")
    assert client.fetch("a", version=11).responses[0].partitions[0].partition_epoch == -1
    assert client.list_offsets("a", version=5).partition_epoch == -1


def test_a_recreated_topic_is_newer_and_so_is_the_deletion(client: TopicClient) -> None:
    client.create("a")
    client.produce("a", records=5)
    client.delete("a")
    assert client.metadata("a").max_partition_epoch == 2, "who knows of the topic is out of date"
    client.create("a")
    assert client.epochs("a") == [3]
    assert client.fetch("a").responses[0].partitions[0].partition_epoch == 3


def test_a_fetch_session_by_name_is_told_of_the_successor(client: TopicClient) -> None:
    """Even if the new topic looks the same: empty, as the old one was."""
    client.create("a")
    opened = client.fetch("a", session_epoch=0)
    assert opened.responses[0].partitions[0].partition_epoch == 1
    session = opened.session_id
    assert session != 0

    def again(epoch: int) -> Any:
        asked = fetch_request("a", min_bytes=0, session_id=session, session_epoch=epoch)
        return client.call(asked, 12).responses

    assert again(1) == []
    client.delete("a")
    client.create("a")
    [topic] = again(2)
    assert topic.partitions[0].partition_epoch == 3
    assert again(3) == []


def test_a_commit_of_the_predecessor_is_refused(client: TopicClient) -> None:
    client.create("a", 2)
    assert client.commit("a", {0: 5}, 1) == [0]
    client.delete("a")
    client.create("a", 2)
    [first, second] = client.epochs("a")
    assert client.commit("a", {0: 6}, 1) == [ErrorCode.INVALID_PARTITION_EPOCH]
    assert client.commit("a", {1: 6}, 2) == [ErrorCode.INVALID_PARTITION_EPOCH], "never committed"
    assert client.commit("a", {0: 1}, first) == [0]
    assert client.commit("a", {1: 1}, second) == [0]
    assert client.commit("a", {0: 2}) == [0], "who knows no epochs is not checked"


@pytest.mark.slow
def test_epochs_outlive_kill_9(start_broker: Start) -> None:
    broker = start_broker()
    client = TopicClient(broker)
    client.create("a", 2)
    client.delete("a")
    client.create("a", 2)
    broker.kill()
    broker.start()
    client = TopicClient(broker)
    assert client.epochs("a") == [4, 5]
    assert client.metadata("a").max_partition_epoch == 5
    client.create("b")
    assert client.epochs("b") == [6]


@pytest.mark.slow
def test_a_stop_between_the_store_and_the_logs(start_broker: Start) -> None:
    """The store has the successor; the log dir still has the predecessor's log."""
    broker = start_broker()
    client = TopicClient(broker)
    client.create("a")
    client.produce("a", records=5)
    broker.stop()
    store = store_of(broker)
    [old] = [topic for topic in znodes.read_topics(store) if topic.name == "a"]
    znodes.delete_topic(store, old)
    znodes.finish_deletion(store, "a")
    new = TopicImage("a", uuid4(), (PartitionImage(0, 0, (0,), (0,)),), {})
    new = znodes.create_topic(store, new._replace(partitions=old.partitions))
    store.close()
    broker.start()
    client = TopicClient(broker)
    assert client.epochs("a") == [new.partitions[0].partition_epoch] == [3]
    assert client.list_offsets("a").offset == 0, "nothing of the predecessor is left in it"
    strays = list(broker.log_dir.glob("a-0.*-stray"))
    assert len(strays) == 1, "but nothing is lost"


@pytest.mark.slow
def test_the_predecessors_folder_does_not_come_back(start_broker: Start) -> None:
    """A copy of the old folder was put in the place of the new one."""
    broker = start_broker()
    client = TopicClient(broker)
    client.create("a")
    client.produce("a", records=5)
    broker.stop()
    shutil.copytree(broker.log_dir / "a-0", broker.folder / "old")
    broker.start()
    client = TopicClient(broker)
    client.delete("a")
    client.create("a")
    broker.stop()
    shutil.rmtree(broker.log_dir / "a-0")
    shutil.copytree(broker.folder / "old", broker.log_dir / "a-0")
    broker.start()
    client = TopicClient(broker)
    assert client.list_offsets("a").offset == 0
    assert client.epochs("a") == [3]


@pytest.mark.slow
def test_a_store_of_an_older_version_gets_epochs_at_the_start(start_broker: Start) -> None:
    broker = start_broker()
    client = TopicClient(broker)
    client.create("a", 2)
    client.produce("a", records=3)
    broker.stop()
    store = store_of(broker)
    for index in range(2):
        path = f"/brokers/topics/a/partitions/{index}"
        state = store.get(f"{path}/state")[0]
        store.delete(f"{path}/state")
        store.delete(path)
        store.multi([Create(path), Create(f"{path}/state", state)])
    store.delete(PARTITION_EPOCH)
    store.close()
    broker.start()
    client = TopicClient(broker)
    assert client.epochs("a") == [1, 2]
    assert client.list_offsets("a").offset == 3
    broker.stop()
    store = store_of(broker)
    assert max_partition_epoch(store) == 2
    node = json.loads(store.get("/brokers/topics/a/partitions/1")[0])
    assert node == {"version": 1, "partition_epoch": 2, "prior_leader_epochs": {}}
    store.close()


def test_a_log_that_is_adopted_gets_an_epoch(start_broker: Start, tmp_path) -> None:
    from kstore import open_log_dir

    with open_log_dir(tmp_path / "broker" / "kstore-logs") as written:
        written.log("a", 0, create=True).append(value=b"v")
    client = TopicClient(start_broker())
    assert client.epochs("a") == [1]
    assert client.list_offsets("a").offset == 1
