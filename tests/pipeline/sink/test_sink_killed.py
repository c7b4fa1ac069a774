"""Exactly once from end to end. A streaming query copies a topic in local-cluster mode, with
executors as separate processes. Its executors and driver are killed (kill -9) at random, and the
target has every record once.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.clients import AdminClient, Producer
from kstore.clients.admin.topics import NewTopic
from kstore.errors import UnknownTopicOrPartitionError
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.beside.topic_records import values_of
from tests.pipeline.own_processes import OwnProcesses

pytestmark = [pytest.mark.slow, pytest.mark.java]

QUERY = [sys.executable, "-m", "tests.pipeline.sink.killed_query"]
RECORDS, ROWS = 3000, 400
DRIVERS_KILLED = 2
TIMEOUT_S = 900.0
EXECUTOR = "CoarseGrainedExecutorBackend"
DRIVER = "org.apache.spark.deploy.SparkSubmit"


def progress(admin: AdminClient) -> int:
    """The number of steps (plans and marks) in the journals of all sinks."""
    steps = 0
    for topic in admin.list_topics(internal=True):
        if topic.startswith("__kstore_sink_"):
            try:
                row = admin.list_offsets({TopicPartition(topic, 0): "latest"})
            except UnknownTopicOrPartitionError:
                continue
            steps += row[TopicPartition(topic, 0)].offset
    return steps


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "own-broker") as started:
        yield started


@pytest.mark.thorough
@pytest.mark.timeout(1000)
def test_nothing_is_written_twice_or_lost_when_executors_and_drivers_are_killed(
    own_broker: Broker, tmp_path: Path
) -> None:
    bootstrap = own_broker.bootstrap_servers
    arguments: dict[str, object] = {
        "bootstrap": bootstrap, "source": "source", "target": "target", "folder": str(tmp_path),
        "rows": ROWS,
    }  # fmt: skip
    values = [b"%d" % n for n in range(RECORDS)]
    log = tmp_path / "application.log"
    deadline = time.monotonic() + TIMEOUT_S
    executors = drivers = 0
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("source", 2), NewTopic("target", 3)])
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send_many("source", values, values)
        while True:
            application = OwnProcesses([*QUERY, json.dumps(arguments)], log)
            # The driver is killed in one of the next few batches, at any step.
            until = progress(admin) + random.randint(1, 5)
            try:
                while application.process.poll() is None:
                    assert time.monotonic() < deadline, log.read_text()[-4000:]
                    time.sleep(random.uniform(0.05, 0.5))
                    if executors < 2 * drivers + 2 and progress(admin) > 0:
                        executors += application.kill(EXECUTOR) > 0
                    if drivers < DRIVERS_KILLED and progress(admin) >= until:
                        drivers += application.kill(DRIVER) > 0
                        break
                if application.process.poll() == 0:
                    break
            finally:
                application.end()
    print(f"killed: {executors} executors, {drivers} drivers")
    assert drivers
    assert executors
    assert values_of(bootstrap, "target") == sorted(values)
