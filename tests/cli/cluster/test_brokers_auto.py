"""`kstore cluster start --brokers auto`: a broker for each core, the machine as their rack, and
replicas on different machines if there are several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.cli.app import run
from kstore.cli.cluster import commands
from kstore.cli.cluster_folder import ClusterFolder
from kstore.clients import AdminClient, NewTopic
from kstore.config import SourceKind
from tests.cli.shell import Shell
from tests.conformance.broker_process import free_ports

pytestmark = pytest.mark.slow
Start = Callable[..., dict[str, Any]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`kstore cluster start --json` with arguments on a machine of two cores, called rocket."""
    monkeypatch.setattr(commands, "usable_cores", lambda: 2)
    monkeypatch.setattr(commands, "machine_name", lambda: "rocket")

    def started(folder: str, *arguments: str, word: str = "start") -> dict[str, Any]:
        [found] = Shell().json("cluster", word, *arguments, "--dir", str(tmp_path / folder))
        return found

    yield started
    for folder in tmp_path.iterdir():
        if ClusterFolder(folder).brokers():
            Shell()("cluster", "stop", "--dir", str(folder))


def racks(servers: str) -> dict[int, str | None]:
    with AdminClient(servers) as admin:
        return {broker.node_id: broker.rack for broker in admin.describe_cluster().brokers}


def test_auto_is_a_broker_for_each_core_with_the_machine_as_its_rack(start: Start) -> None:
    port = free_ports(3)
    said = start("one", "--brokers", "auto", "--port", str(port))
    assert [row["address"] for row in said["brokers"]] == [
        f"localhost:{port}",
        f"localhost:{port + 1}",
    ]
    assert [row["rack"] for row in said["brokers"]] == ["rocket", "rocket"]
    assert racks(said["bootstrap_servers"]) == {1: "rocket", 2: "rocket"}
    with AdminClient(said["bootstrap_servers"]) as admin:
        admin.create_topics([NewTopic("t", 4, 2)])
        (found,) = admin.describe_topics(["t"])
    assert sorted(row.leader for row in found.partitions) == [1, 1, 2, 2]

    added = start("one", word="add")
    assert [(row["broker"], row["rack"]) for row in added["brokers"]] == [(3, "rocket")]


def test_a_given_rack_wins_and_a_number_has_none(start: Start) -> None:
    port = free_ports(2)
    said = start("one", "--brokers", "auto", "--rack", "r7", "--port", str(port))
    assert racks(said["bootstrap_servers"]) == {1: "r7", 2: "r7"}
    said = start("two", "-n", "1", "--port", str(free_ports(1)))
    assert [row["rack"] for row in said["brokers"]] == [None]
    said = start(
        "three", "-n", "auto", "--override", "broker.rack=r8", "--port", str(free_ports(2))
    )
    assert [row["rack"] for row in said["brokers"]] == ["r8", "r8"]


def test_replicas_never_share_a_machine_where_there_are_several(
    start: Start, tmp_path: Path
) -> None:
    shared = ["--brokers", "auto", "--override", f"kstore.coordination.dir={tmp_path}/both"]
    start("one", *shared, "--port", str(free_ports(2)))
    said = start(
        "two", *shared, "--rack", "plane", "--first-id", "11", "--port", str(free_ports(2))
    )
    assert racks(said["bootstrap_servers"]) == {
        1: "rocket", 2: "rocket", 11: "plane", 12: "plane",
    }  # fmt: skip
    with AdminClient(said["bootstrap_servers"]) as admin:
        admin.create_topics([NewTopic("t", 8, 2)])
        (found,) = admin.describe_topics(["t"])
    leaders = sorted(row.leader for row in found.partitions)
    assert leaders == [1, 1, 2, 2, 11, 11, 12, 12]
    for row in found.partitions:
        assert len({node > 10 for node in row.replicas}) == 2, row


def test_brokers_of_several_machines_share_a_zookeeper_and_no_folder(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    settings = {"zookeeper.connect": "zk:2181/kstore"}
    config = folder.make(11, "m1.example", 9092, 2, settings).config()
    assert config["zookeeper.connect"] == "zk:2181/kstore"
    assert not config["kstore.coordination.dir"]
    assert config.source("offsets.topic.replication.factor").kind is SourceKind.DEFAULT
    assert folder.broker(11).address() == "m1.example:9092"


def test_what_is_no_number_of_brokers_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for count in ("0", "-1", "many", ""):
        assert run(["cluster", "start", f"--brokers={count}", "--dir", str(tmp_path / "c")]) == 2
        assert "is not a number of brokers from 1 on, nor auto" in capsys.readouterr().err
