"""Kafka Connect in distributed mode: a file is copied into a topic, exactly once, and into another
file. The worker is killed with -9 in the middle and continues from its topics.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import Consumer
from tests.beside.waiting import until
from tests.conformance.broker_process import free_port
from tests.conformance.kafka_jars import KAFKA_VERSION, fetch, jar_folder, java_program
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = [pytest.mark.nightly, pytest.mark.java, pytest.mark.slow]

LINES = 1000


class Worker:
    """One worker of a Connect cluster, driven by its REST interface."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        jars = fetch(
            Path(__file__).parent / "connect.xml",
            jar_folder().with_name(f"connect-{KAFKA_VERSION}"),
            f"connect-runtime-{KAFKA_VERSION}",
            f"connect-file-{KAFKA_VERSION}",
        )
        self.port = free_port()
        settings = folder / f"worker-{self.port}.properties"
        values = {
            "bootstrap.servers": bootstrap, "group.id": "connect-cluster",
            "listeners": f"http://localhost:{self.port}",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "500", "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": "0",
        }  # fmt: skip
        for topic in ("config", "offset", "status"):
            values[f"{topic}.storage.topic"] = f"connect-{topic}"
            values[f"{topic}.storage.replication.factor"] = "1"
        settings.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        self.log = folder / f"worker-{self.port}.log"
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [java_program(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
                 "org.apache.kafka.connect.cli.ConnectDistributed", str(settings)],
                stdout=log, stderr=log,
            )  # fmt: skip

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer to a request, None while the worker does not answer with success."""
        assert self._process.poll() is None, self.log.read_text()[-4000:]
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://localhost:{self.port}{path}", data, method=method,
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read() or b"null")
        except (urllib.error.URLError, OSError):
            return None

    def start_connector(self, name: str, **config: str) -> None:
        """Make it and wait until its task runs."""
        settings = {"tasks.max": "1"} | {key.replace("_", "."): v for key, v in config.items()}
        until(
            lambda: self.ask(f"/connectors/{name}/config", settings, "PUT") is not None,
            f"{name} is taken", 90,
        )  # fmt: skip
        self.wait_running(name)

    def wait_running(self, name: str) -> None:
        """Until its task runs."""

        def runs() -> bool:
            status = self.ask(f"/connectors/{name}/status") or {"tasks": []}
            return [task["state"] for task in status["tasks"]] == ["RUNNING"]

        until(runs, f"{name} runs", 90)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KstoreBroker]:
    quick = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    with KstoreBroker(tmp_path / "broker", overrides=quick) as running:
        yield running


def test_a_file_goes_through_a_topic_once(broker: KstoreBroker, tmp_path: Path) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    lines = [f"line {number}" for number in range(LINES)]
    source.write_text("".join(f"{line}\n" for line in lines[: LINES // 2]))
    worker = Worker(broker.bootstrap, tmp_path)
    try:
        worker.start_connector("source", connector_class="FileStreamSource", topic="lines",
                               file=str(source))  # fmt: skip
        worker.start_connector("sink", connector_class="FileStreamSink", topics="lines",
                               file=str(target))  # fmt: skip
        until(lambda: count(target) >= LINES // 2, "the first half arrives", 60)
    finally:
        worker.kill()
    with open(source, "a") as more:
        more.writelines(f"{line}\n" for line in lines[LINES // 2 :])
    worker = Worker(broker.bootstrap, tmp_path)
    try:
        for name in ("source", "sink"):
            worker.wait_running(name)
        until(lambda: lines[-1] in target.read_text().splitlines(), "the rest arrives", 90)
    finally:
        worker.kill()
    with Consumer(
        {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest",
         "isolation.level": "read_committed", "consumer.timeout.ms": 3000}, "lines",
    ) as reader:  # fmt: skip
        assert [(record.value or b"").decode() for record in reader] == lines
    assert sorted(set(target.read_text().splitlines())) == sorted(lines), "the sink: at least once"


def count(file: Path) -> int:
    """How many lines it has, 0 if it is not there."""
    return len(file.read_text().splitlines()) if file.exists() else 0
