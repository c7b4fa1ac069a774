"""The broker as a process: restarts, and how it starts, stops and refuses to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

import kstore
from tests.beside.librdkafka import read_first, write_all
from tests.conformance.kstore_broker import BrokerDiedError, KstoreBroker

Start = Callable[..., KstoreBroker]
CLIENTS: list[AdminClient] = []

pytestmark = [pytest.mark.slow, pytest.mark.own_python]


@pytest.fixture(autouse=True)
def end_clients() -> Iterator[None]:
    """No client outlives its test's broker."""
    yield
    CLIENTS.clear()


def admin(broker: KstoreBroker) -> AdminClient:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    CLIENTS.append(client)  # its futures end with it
    return client


def create(broker: KstoreBroker, *topics: NewTopic) -> None:
    for made in admin(broker).create_topics(list(topics)).values():
        made.result(10)


def produce(broker: KstoreBroker, topic: str, values: list[bytes], **settings: object) -> None:
    write_all(broker.bootstrap, topic, values, [0], {"linger.ms": 1} | settings)


def consume(broker: KstoreBroker, topic: str, count: int, partition: int = 0) -> list[bytes]:
    return [each.value() for each in read_first(broker.bootstrap, topic, count, partition)]


def topic_ids(broker: KstoreBroker) -> list[str]:
    """The ids in the folders of all topics except internal ones."""
    folder = broker.log_dir
    names = [name for name in os.listdir(folder) if not name.startswith((".", "__"))]
    return sorted((folder / name / "partition.metadata").read_text() for name in names)


def test_clean_stop_and_restart_keep_topics_configs_and_records(broker: KstoreBroker) -> None:
    create(broker, NewTopic("kept", 3, 1, config={"retention.ms": "1234567"}))
    produce(broker, "kept", [b"%d" % i for i in range(100)])
    ids = topic_ids(broker)

    assert broker.stop() == 0
    broker.start()

    assert topic_ids(broker) == ids
    assert consume(broker, "kept", 100) == [b"%d" % i for i in range(100)]
    assert len(admin(broker).list_topics(timeout=10).topics["kept"].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    configs = admin(broker).describe_configs([resource])[resource].result(10)
    assert configs["retention.ms"].value == "1234567"


def test_kill_and_restart_keep_what_was_acknowledged(broker: KstoreBroker) -> None:
    create(broker, NewTopic("kept", 1, 1))
    produce(broker, "kept", [b"%d" % i for i in range(100)])
    broker.kill()
    broker.start()
    assert consume(broker, "kept", 100) == [b"%d" % i for i in range(100)]
    produce(broker, "kept", [b"more"])
    assert consume(broker, "kept", 101)[100] == b"more"


def test_a_deleted_and_recreated_topic_is_empty(broker: KstoreBroker) -> None:
    create(broker, NewTopic("again", 1, 1))
    produce(broker, "again", [b"old"])
    before = topic_ids(broker)
    admin(broker).delete_topics(["again"])["again"].result(10)
    assert topic_ids(broker) == []
    create(broker, NewTopic("again", 1, 1))
    produce(broker, "again", [b"new"])
    assert consume(broker, "again", 1) == [b"new"]
    assert topic_ids(broker) != before


def test_logs_written_without_a_broker_appear_as_topics(
    start_broker: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "broker" / "kstore-logs"
    with kstore.open_log(folder, topic="embedded") as log:
        for number in range(10):
            log.append(b"%d" % number)

    broker = start_broker()

    assert consume(broker, "embedded", 10) == [b"%d" % i for i in range(10)]
    broker.stop()
    with kstore.open_log(folder, topic="embedded") as log:
        log.append(b"later")
    broker.start()
    assert consume(broker, "embedded", 11)[10] == b"later"


def test_a_folder_of_another_topic_of_that_name_is_put_aside(broker: KstoreBroker) -> None:
    create(broker, NewTopic("mine", 1, 1))
    broker.stop()
    metadata = broker.log_dir / "mine-0" / "partition.metadata"
    lines = metadata.read_text().splitlines()
    lines[-1] = "topic_id: AAAAAAAAAAAAAAAAAAAAEA"
    metadata.write_text("\n".join(lines) + "\n")

    broker.start()

    assert len(list(broker.log_dir.glob("mine-0.*-stray"))) == 1
    produce(broker, "mine", [b"fresh"])
    assert consume(broker, "mine", 1) == [b"fresh"]


def test_topics_are_made_when_they_are_first_asked_for(start_broker: Start) -> None:
    broker = start_broker({"num.partitions": "2"})
    produce(broker, "auto", [b"x"])
    assert len(admin(broker).list_topics(timeout=10).topics["auto"].partitions) == 2


def test_topics_are_not_made_where_that_is_switched_off(start_broker: Start) -> None:
    broker = start_broker({"auto.create.topics.enable": "false"})
    found = admin(broker).list_topics("nope", timeout=10)
    assert found.topics["nope"].error is not None
    assert "nope" not in admin(broker).list_topics(timeout=10).topics


def test_a_topic_grows_and_its_new_partitions_work(broker: KstoreBroker) -> None:
    create(broker, NewTopic("grows", 1, 1))
    admin(broker).create_partitions([NewPartitions("grows", 3)])["grows"].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("grows", b"x", partition=2)
    assert producer.flush(20) == 0
    assert consume(broker, "grows", 1, partition=2) == [b"x"]
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin(broker).create_partitions([NewPartitions("grows", 2)])["grows"].result(10)


def test_a_changed_topic_config_acts_at_once(broker: KstoreBroker) -> None:
    create(broker, NewTopic("small", 1, 1))
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "small", incremental_configs=[entry])
    admin(broker).incremental_alter_configs([resource])[resource].result(10)
    with pytest.raises(AssertionError):
        produce(broker, "small", [os.urandom(2000)])
    produce(broker, "small", [os.urandom(500)])


@pytest.mark.parametrize("policy", ["os", "interval", "always"])
def test_flush_policies(start_broker: Start, policy: str) -> None:
    broker = start_broker({"kstore.flush.policy": policy})
    values = [b"%d" % i for i in range(50)]
    produce(broker, "flushed", values, **{"enable.idempotence": True})
    assert consume(broker, "flushed", 50) == values


def test_a_stop_answers_fetches_that_wait(broker: KstoreBroker) -> None:
    create(broker, NewTopic("quiet", 1, 1))
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "fetch.wait.max.ms": 30_000,
         "socket.timeout.ms": 60_000}
    )  # fmt: skip
    consumer.assign([TopicPartition("quiet", 0, 0)])
    consumer.poll(1)
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - began < 15
    consumer.close()


def test_a_second_broker_on_the_same_folder_is_told_who_holds_it(
    broker: KstoreBroker, tmp_path: Path
) -> None:
    second = KstoreBroker(tmp_path / "second", overrides={"log.dirs": str(broker.log_dir)})
    with pytest.raises(BrokerDiedError) as failure:
        second.start()
    assert str(broker.pid) in str(failure.value)
    assert "Traceback" not in str(failure.value)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_port_in_use_is_one_sentence_and_exit_code_1(
    broker: KstoreBroker, tmp_path: Path, signal_number: int
) -> None:
    command = [
        sys.executable, "-m", "kstore", "serve", f"--override=log.dirs={tmp_path}/other",
        f"--override=listeners=PLAINTEXT://{broker.bootstrap}",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    [sentence] = ended.stderr.splitlines()
    assert str(broker.port) in sentence
    assert "in use" in sentence
    assert broker.process is not None
    broker.process.send_signal(signal_number)
    assert broker.process.wait(20) == 0


def test_a_host_that_is_not_here_is_one_sentence(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "kstore", "serve", f"--override=log.dirs={tmp_path}/other",
        "--override=listeners=PLAINTEXT://192.0.2.1:0",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    [sentence] = ended.stderr.splitlines()
    assert "192.0.2.1" in sentence


def test_a_thread_that_computes_in_python_holds_the_loop_for_half_a_millisecond(
    tmp_path: Path,
) -> None:
    script = """
import os, signal, sys
from kstore.broker.app import serve
from kstore.config import BrokerConfig

def on_ready(*_):
    print(sys.getswitchinterval())
    os.kill(os.getpid(), signal.SIGTERM)

given = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
serve(BrokerConfig.load(None, given), on_ready)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) == 0.0005
