"""Flink's connector for Kafka, under PyFlink: a job that writes exactly once is killed with -9 in
the middle of a transaction, and continues from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstore.clients import AdminClient, Consumer, Producer
from tests.beside.waiting import until
from tests.conformance.kafka_jars import fetch
from tests.conformance.kstore_broker import KstoreBroker
from tests.works_with.environments import CACHE, PROGRAMS, environment

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

CONNECTOR = "flink-connector-kafka-5.0.0-2.2"
SOURCE, TARGET = "numbers", "doubled"
HALF = 500


@contextmanager
def job(bootstrap: str, folder: Path, *checkpoint: str) -> Iterator[None]:
    """The job while the block runs; then kill -9, for Python and its JVM."""
    python = environment("flink", ["apache-flink==2.2.1"])
    jars = fetch(Path(__file__).parent / "flink.xml", CACHE / CONNECTOR, CONNECTOR)
    arguments = [str(jars), bootstrap, SOURCE, TARGET, str(folder / "checkpoints"), *checkpoint]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KSTORE_"))}
    with open(folder / "flink.log", "ab") as log:
        process = subprocess.Popen(
            [str(python), str(PROGRAMS / "flink_app.py"), *arguments],
            cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield
        assert process.poll() is None, (folder / "flink.log").read_text()[-4000:]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def send(broker: KstoreBroker, numbers: range) -> None:
    """These numbers, over all partitions."""
    with Producer(broker.bootstrap) as producer:
        for number in numbers:
            producer.send(SOURCE, json.dumps({"number": number}).encode(), key=b"%d" % number)


class Committed:
    """What the target has in committed transactions, in the order of arrival."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest",
             "isolation.level": "read_committed"}, TARGET,
        )  # fmt: skip
        self.found: list[tuple[int, int]] = []

    def more(self) -> int:
        """Poll once; how many there are by now."""
        for record in self._consumer.poll(1000):
            value = json.loads(record.value or b"null")
            self.found.append((value["number"], value["twice"]))
        return len(self.found)

    def close(self) -> None:
        self._consumer.close()


def last_checkpoint(folder: Path) -> str:
    """The newest one that is complete."""
    complete = (folder / "checkpoints").glob("*/chk-*/_metadata")
    return str(max(complete, key=lambda file: file.stat().st_mtime).parent)


def test_a_killed_job_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with KstoreBroker(tmp_path / "broker") as broker:
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics({SOURCE: 3, TARGET: 2})
        target = Committed(broker.bootstrap)
        with job(broker.bootstrap, tmp_path):
            send(broker, range(HALF))
            until(lambda: target.more() > 0, "a transaction is committed", 180)
            send(broker, range(HALF, 2 * HALF))
        with job(broker.bootstrap, tmp_path, last_checkpoint(tmp_path)):
            until(lambda: target.more() >= 2 * HALF, "all is doubled", 180)
            send(broker, range(2 * HALF, 2 * HALF + 1))
            until(lambda: target.more() > 2 * HALF, "what comes later too", 60)
        target.more()
        target.close()
    assert sorted(target.found) == [(number, 2 * number) for number in range(2 * HALF + 1)]
