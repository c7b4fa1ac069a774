"""`kstore cluster` as a user types it: start, status, kill, start again, add, stop."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.cli.app import run
from kstore.cli.cluster_folder import ClusterFolder
from tests.cli.shell import Done, run_here
from tests.conformance.broker_process import free_ports

pytestmark = pytest.mark.slow


STARTING = ("start", "add")
"""Whose brokers are no children of the test: they run on when the command has ended."""


class Shell:
    """Runs `kstore cluster` on one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it wrote: errors, if it is to fail."""
        words = ["cluster", *arguments, "--dir", str(self.folder)]
        if arguments[0] not in STARTING:
            done = run_here(*words)
        else:
            command = [sys.executable, "-m", "kstore", *words]
            ended = subprocess.run(command, capture_output=True, timeout=120, check=False)
            done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert done.code == code, (done.output + done.errors).decode()
        assert b"Traceback" not in done.errors
        return (done.errors if code else done.output).decode()

    def rows(self, code: int = 0) -> list[dict[str, Any]]:
        """What status says of each broker."""
        done = run_here("cluster", "status", "--json", "--dir", str(self.folder))
        assert done.code == code, (done.output + done.errors).decode()
        return [json.loads(line) for line in done.output.splitlines()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "cluster")
    yield shell
    if ClusterFolder(shell.folder).brokers():
        shell("stop")


def test_a_clusters_life(cluster: Shell) -> None:
    port = free_ports(4)
    said = json.loads(cluster("start", "-n", "3", "-p", str(port), "--json"))
    addresses = [f"localhost:{port + i}" for i in range(3)]
    assert said["bootstrap_servers"] == ",".join(addresses)
    assert [row["broker"] for row in said["brokers"]] == [1, 2, 3]
    rows = cluster.rows()
    assert [row["address"] for row in rows] == addresses
    assert [row["pid"] for row in rows] == [row["pid"] for row in said["brokers"]]
    assert sum(row["controller"] for row in rows) == 1
    for row in rows:
        written = cluster.folder / f"broker{row['broker']}" / "pid"
        assert int(written.read_text()) == row["pid"]
        os.kill(row["pid"], 0)
    assert "all brokers" in cluster("start", code=1)

    assert cluster("kill", "2") == "killed broker 2\n"
    assert "broker 2 is not running" in cluster("kill", "2", code=1)
    assert [row["pid"] is None for row in cluster.rows(code=1)] == [False, True, False]
    assert "1 of 3 brokers are not running: 2" in cluster("status", code=1)
    assert f"broker 2 ready on {addresses[1]}" in cluster("start")
    assert f"broker 4 ready on localhost:{port + 3}" in cluster("add")
    assert len(cluster.rows()) == 4

    assert cluster("stop") == "stopped 4 brokers\n"
    assert cluster("stop") == "no broker was running\n"
    assert all(row["pid"] is None for row in cluster.rows(code=1))
    assert not list(cluster.folder.glob("broker*/pid"))


def test_a_broker_that_was_started_by_hand_belongs_to_the_cluster(cluster: Shell) -> None:
    cluster("start", "-n", "1", "-p", str(free_ports(1)))
    cluster("stop")
    properties = cluster.folder / "broker1" / "server.properties"
    by_hand = subprocess.Popen(
        [sys.executable, "-m", "kstore", "serve", str(properties)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with by_hand:
        assert by_hand.stdout is not None
        assert by_hand.stdout.readline().startswith("kstore ready on ")
        (row,) = cluster.rows()
        assert row["pid"] == by_hand.pid
        assert row["controller"]
        assert cluster("stop") == "stopped 1 brokers\n"
        assert by_hand.wait(60) == 0


def test_settings_are_given_to_every_broker(
    cluster: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSTORE_LISTENERS", "PLAINTEXT://localhost:1")  # would be all brokers' own
    cluster("start", "-n", "1", "-p", str(free_ports(1)), "--override", "num.partitions=7")
    assert ClusterFolder(cluster.folder).broker(1).config()["num.partitions"] == 7


def test_what_can_not_be_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"

    def cluster(*arguments: str, code: int) -> str:
        assert run(["cluster", *arguments, "--dir", str(folder)]) == code
        return capsys.readouterr().err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = cluster("start", "-n", "1", "-p", str(port), code=1)
        assert f"port {port} for broker 1 is not available" in error
        assert ("use another --port" in error, "listeners" in error) == (True, False)
    assert not folder.exists()
    assert "has no cluster" in cluster("status", code=1)
    assert "has no cluster" in cluster("stop", code=1)
    assert "num.partitions" in cluster("start", "--override", "num.partitions=no", code=2)
    assert "is not KEY=VALUE" in cluster("start", "--override", "num.partitions", code=2)
    folder.write_text("in the way")
    assert "Not a directory" in cluster("start", "-p", str(free_ports(3)), code=1)


def test_a_broker_that_can_not_start_ends_the_others(cluster: Shell) -> None:
    cluster("start", "-n", "2", "-p", str(free_ports(2)))
    cluster("stop")
    one, other = ClusterFolder(cluster.folder).brokers()
    properties = other.properties
    with properties.open("a") as file:
        file.write("log.segment.bytes=no\n")
    assert "log.segment.bytes" in cluster("start", code=2)
    properties.write_text(properties.read_text().replace("log.segment.bytes=no", "node.id=1"))
    problem = cluster("start", code=1)
    assert "broker 2 cannot start" in problem
    assert "belongs to broker 2, and this is broker 1" in problem
    assert one.pid() is None


def test_commands_find_the_living_brokers_of_a_folder(cluster: Shell, tmp_path: Path) -> None:
    """The first broker is killed: neither the named folder nor the default one leads to it."""
    cluster.folder = tmp_path / "kstore-cluster"
    environment = {k: v for k, v in os.environ.items() if k != "KSTORE_BOOTSTRAP_SERVER"}

    def kstore(*arguments: str, code: int = 0) -> str:
        done = run_here(*arguments, stdin=b"a line\n", environment=environment, folder=tmp_path)
        assert done.code == code, (done.output + done.errors).decode()
        assert b"cannot connect to" not in done.errors
        return (done.errors if code else done.output).decode()

    ports = free_ports(2)
    cluster("start", "-n", "2", "-p", str(ports), "--override", "min.insync.replicas=1")
    kstore("topic", "create", "t")
    kstore("produce", "t", "-X", "linger.ms=0")
    assert kstore("consume", "t", "-G", "g", "-c", "1") == "a line\n"
    cluster("kill", "1")
    assert kstore("topic", "list") == "t\n"
    kstore("produce", "t")
    assert kstore("group", "list", "--json", "-b", "kstore-cluster").count("\n") == 1
    assert kstore("consume", "t", "-G", "g", "-e", "-b", str(cluster.folder)) == "a line\n"
    both = f"localhost:{ports},localhost:{ports + 1}"
    assert kstore("group", "list", "--json", "-b", both).count("\n") == 1
    cluster("stop")
    assert "no broker of kstore-cluster is running" in kstore(
        "topic", "list", "-b", "kstore-cluster", code=1
    )
