"""The same query on a standalone cluster: a master and two workers on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from kstore.clients import AdminClient, Producer
from kstore.clients.admin.topics import NewTopic
from kstore.testing.brokers import Broker
from kstore.testing.spark_cluster import SparkCluster
from tests.beside.topic_records import values_of

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.thorough
def test_a_query_runs_on_two_workers(broker: Broker, admin: AdminClient, tmp_path: Path) -> None:
    source, target = (f"t-{uuid.uuid4().hex[:12]}" for _ in range(2))
    values = [b"%d" % n for n in range(1000)]
    admin.create_topics([NewTopic(source, 2), NewTopic(target, 3)])
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(source, values, values)
    with SparkCluster(tmp_path / "cluster", workers=2, memory="512m") as cluster:
        arguments = {
            "bootstrap": broker.bootstrap_servers, "source": source, "target": target,
            "folder": str(tmp_path), "master": cluster.url,
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.pipeline.sink.killed_query", json.dumps(arguments)]
        with (tmp_path / "application.log").open("wb") as log:
            subprocess.run(command, check=True, cwd=ROOT, stdout=log, stderr=log, timeout=500)
    assert values_of(broker.bootstrap_servers, target) == sorted(values)
    for number in range(2):  # each worker had an executor
        folders = list((tmp_path / "cluster" / f"worker-{number}").glob("app-*/*"))
        assert folders, f"worker {number} has done nothing"
