"""Exactly once from end to end: a streaming query from topic to topic, in local-cluster mode with
executors as processes of their own, whose executors and driver are killed (kill -9) at random, has
every record in its target once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.clients import AdminClient, Producer
from kstore.clients.admin.topics import NewTopic
from kstore.errors import UnknownTopicOrPartitionError
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.pipeline.topic_rows import values_of

pytestmark = [pytest.mark.slow, pytest.mark.java]

ROOT = Path(__file__).resolve().parents[2]
RECORDS, ROWS = 3000, 400
DRIVERS_KILLED = 2
TIMEOUT_S = 900.0
EXECUTOR = "CoarseGrainedExecutorBackend"
DRIVER = "org.apache.spark.deploy.SparkSubmit"


class Application:
    """The query as a process; everything that it starts has its environment's mark."""

    def __init__(self, arguments: dict[str, object], log: Path) -> None:
        self._mark = f"KSTORE_TEST_APPLICATION={uuid.uuid4().hex}"
        name, value = self._mark.split("=")
        self._log = log.open("ab")
        command = [sys.executable, "-m", "tests.pipeline.killed_query", json.dumps(arguments)]
        self.process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, cwd=ROOT, env=os.environ | {name: value}
        )

    def pids(self, what: str) -> list[int]:
        """The processes of this application with this in their command line."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    mine = self._mark.encode() in (folder / "environ").read_bytes()
                    if mine and what.encode() in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
                except OSError:  # it has ended
                    continue
        return found

    def kill(self, what: str) -> int:
        """Kill one of these processes, if there is one, whichever."""
        pids = self.pids(what)
        if not pids:
            return 0
        pid = random.choice(pids)
        _kill(pid)
        return pid

    def end(self) -> None:
        """Nothing of it is left."""
        while pids := self.pids(""):
            for pid in pids:
                _kill(pid)
            self.process.poll()
            time.sleep(0.05)
        self.process.wait()
        self._log.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def progress(admin: AdminClient) -> int:
    """How many steps (plans and marks) the journals of all sinks have."""
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
            application = Application(arguments, log)
            # A driver dies somewhere in one of the next few batches, at any of their steps.
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
