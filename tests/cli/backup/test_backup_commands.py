"""`kstore backup` with real brokers: a cluster under load, a single broker, kill -9."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.cli.app import run
from kstore.cli.cluster_folder import ClusterFolder
from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.beside.topic_records import records_of, transaction
from tests.cli.shell import Shell
from tests.conformance.broker_process import free_ports

pytestmark = pytest.mark.slow

ROUNDS = 3
TOPICS = ("left", "right")


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def shell() -> Iterator[Shell]:
    made = Shell()
    yield made
    made.kill_rest()


@pytest.fixture
def kstore(shell: Shell) -> Run:
    """Runs a command in this process; the objects that it writes."""
    return shell.json


class Load:
    """Transactions of a record in each of two topics, each with the offset committed with it; and a
    group that commits what it has read.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.committed = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number,), daemon=True) for number in (1, 2)
        ]
        self._threads.append(threading.Thread(target=self._read, daemon=True))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.wait_for(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more: int) -> None:
        """Wait until this many more transactions are committed."""
        wanted = self.committed + more
        while self.committed < wanted:
            assert all(thread.is_alive() for thread in self._threads)
            time.sleep(0.01)

    def _write(self, number: int) -> None:
        with Producer(
            {"bootstrap.servers": self.servers, "transactional.id": f"writer{number}"}
        ) as producer:
            producer.init_transactions()
            count = 0
            while not self._stop.is_set():
                count += 1
                with transaction(producer, commits=count % 5 > 0):
                    for topic in TOPICS:
                        producer.send(topic, b"%d %d" % (number, count), partition=number % 2)
                self.committed += count % 5 > 0

    def _read(self) -> None:
        settings = {
            "bootstrap.servers": self.servers, "group.id": "readers", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "group.protocol": "classic",
        }  # fmt: skip
        with Consumer(settings) as consumer:
            consumer.subscribe(list(TOPICS))
            while not self._stop.is_set():
                if consumer.poll(0.1):
                    consumer.commit()


def committed_values(servers: str, topic: str) -> list[bytes]:
    found = records_of(servers, topic, isolation_level="read_committed")
    return [record.value for record in found]


@pytest.fixture
def cluster(tmp_path: Path, kstore: Run) -> Iterator[tuple[Path, str]]:
    """A cluster of three brokers in a folder."""
    folder, port = tmp_path / "cluster", free_ports(3)
    overrides = [
        f"--override={name}"
        for name in (
            "offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2",
            "log.segment.bytes=1048576", "group.initial.rebalance.delay.ms=0",
        )
    ]  # fmt: skip
    kstore("cluster", "start", "--dir", str(folder), "--port", str(port), *overrides)
    servers = f"localhost:{port}"
    with AdminClient({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(topic, 2) for topic in TOPICS])
    yield folder, servers
    for place in (folder, tmp_path / "restored"):
        for broker in ClusterFolder(place).brokers():
            broker.end(signal.SIGKILL)


def test_a_cluster_under_load_comes_back_as_it_was_at_one_moment(
    cluster: tuple[Path, str], tmp_path: Path, kstore: Run
) -> None:
    folder, servers = cluster
    backups, restored = str(tmp_path / "backups"), tmp_path / "restored"
    with AdminClient({"bootstrap.servers": servers}) as admin:
        admin.alter_configs("left", {"retention.ms": "123456789"})
    with Load(servers) as load:
        rows = []
        for source in (("--folder", str(folder)), ("-b", servers), ("--folder", str(folder))):
            rows += [row for row in kstore("backup", "create", backups, *source) if "kind" in row]
            load.wait_for(10)
    assert rows[2]["new_bytes"] < rows[2]["bytes"]
    kstore("cluster", "stop", "--dir", str(folder))
    kstore("backup", "restore", backups, "--to", str(restored))
    kstore("cluster", "start", "--dir", str(restored))
    check_restored(servers)


def check_restored(servers: str) -> None:
    for number in (1, 2):  # which ends what was open
        settings = {"bootstrap.servers": servers, "transactional.id": f"writer{number}"}
        with Producer(settings) as producer:
            producer.init_transactions()
    left, right = (committed_values(servers, topic) for topic in TOPICS)
    assert sorted(left) == sorted(right)
    for number in (1, 2):
        counts = [int(value.split()[1]) for value in left if value.startswith(b"%d " % number)]
        assert counts == [count for count in range(1, counts[-1] + 1) if count % 5]
    with AdminClient({"bootstrap.servers": servers}) as admin:
        assert admin.describe_configs("left")["retention.ms"].value == "123456789"
        offsets = admin.list_group_offsets("readers")
        places = [TopicPartition(topic, index) for topic in TOPICS for index in (0, 1)]
        ends = admin.list_offsets(dict.fromkeys(places, "latest"))
        assert offsets
        for place, commit in offsets.items():
            assert commit.offset <= ends[place].offset


def test_kill_loses_no_earlier_backup_and_leaves_no_half_restored_folder(
    tmp_path: Path, shell: Shell, kstore: Run
) -> None:
    chance = random.Random(17)
    backups, count = str(tmp_path / "backups"), 0
    settings = {"log.segment.bytes": 1 << 20}
    with (
        Broker(tmp_path / "broker", settings) as broker,
        Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer,
    ):

        def write() -> None:
            nonlocal count
            for _ in range(1000):
                producer.send("orders", b"%d" % count + b"." * 1000, partition=0)
                count += 1
            producer.flush()

        write()
        create = ("backup", "create", backups, "--folder", str(tmp_path / "broker" / "data"))
        known = {kstore(*create)[-1]["name"]}
        for number in range(ROUNDS):
            write()
            killed(shell, chance, *create)
            names = {row["name"] for row in kstore("backup", "list", backups)}
            assert known <= names
            known = names
            kstore("backup", "verify", backups, "--backup", chance.choice(sorted(names)))
            target = tmp_path / f"restored{number}"
            killed(shell, chance, "backup", "restore", backups, "--to", str(target))
            if target.exists():
                assert (target / ".coordination" / "data.mdb").exists()
        final = kstore(*create)[-1]
        kstore("backup", "verify", backups)
    kstore("backup", "restore", backups, "--to", str(tmp_path / "final"))
    with (
        Broker(tmp_path / "again", {"log.dirs": str(tmp_path / "final")}) as broker,
        AdminClient({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        place = TopicPartition("orders", 0)
        assert admin.list_offsets({place: "latest"})[place].offset == count
    assert final["bytes"] > count * 1000


def killed(shell: Shell, chance: random.Random, *arguments: str) -> None:
    """Run a command, and kill it at a random moment unless it has ended."""
    process = shell.popen(*arguments)
    time.sleep(0.1 + chance.random() * 0.8)
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["create", "b", "--folder", "none"], 1, "none is not a folder"),
        (["create", "b", "--folder", "empty"], 1, "has no cluster and no logs"),
        (["list", "b"], 1, "has no backups: create one"),
        (["create", "b", "--folder", "x", "--config", "y"], 2, "use one of --folder, --config and"),
    ],
)
def test_what_is_not_there_is_told(
    arguments: list[str],
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["backup", *arguments]) == code
    assert sentence in capsys.readouterr().err
