"""A real Apache ZooKeeper, one server or an ensemble of them, fetched through Maven: what the
coordination store is tested against.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.beside.waiting import answer_of
from tests.conformance.broker_process import BrokerDiedError, BrokerProcess, free_port
from tests.conformance.kafka_jars import fetch, jar_folder, java_program

POM = Path(__file__).parent / "java" / "zookeeper.xml"
VERSION = "3.9.4"
TICK_MS = 250


def zookeeper_classpath() -> str:
    """ZooKeeper's jars as a Java class path, fetched first if need be."""
    folder = jar_folder().with_name(f"zookeeper-{VERSION}")
    return os.pathsep.join(
        str(jar) for jar in sorted(fetch(POM, folder, f"zookeeper-{VERSION}").glob("*.jar"))
    )


class ZooKeeperServer(BrokerProcess):
    """One server; alone, or as number ``number`` of the ensemble whose addresses are given."""

    def __init__(self, folder: Path, number: int = 1, peers: Mapping[str, str] | None = None):
        super().__init__(folder, peers)
        self.number = number

    def command(self) -> list[str]:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [
            java_program(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.admin.enableServer=false", "-cp", zookeeper_classpath(), main,
            str(self.folder / "zoo.cfg"),
        ]  # fmt: skip

    def prepare(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": str(TICK_MS),
            "maxSessionTimeout": "120000",  # a restarted JVM may need long on a busy machine
            "initLimit": "40",
            "syncLimit": "20",
            "dataDir": str(self.log_dir),
            "clientPort": str(self.port),
            "clientPortAddress": self.host,
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "srvr",
            **self.overrides,
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "zoo.cfg").write_text("".join(lines))
        (self.log_dir / "myid").write_text(f"{self.number}\n")

    def mode(self) -> str | None:
        """standalone, leader or follower; None while it does not serve."""
        try:
            with socket.create_connection((self.host, self.port), 1) as link:
                link.sendall(b"srvr")
                said = b""
                while piece := link.recv(4096):
                    said += piece
        except OSError:
            return None
        for line in said.decode().splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def _first_answer(self, deadline: float) -> float:
        assert self.process is not None
        # A member of an ensemble serves once there is a majority: its start is not waited for.
        while self.number == 1 and not self.overrides and self.mode() is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BrokerDiedError("ZooKeeper did not start")
            time.sleep(0.02)
        return time.monotonic()


class ZooKeeperEnsemble:
    """Three servers that elect a leader."""

    def __init__(self, folder: Path) -> None:
        numbers = (1, 2, 3)
        peers = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in numbers}
        self.servers = [ZooKeeperServer(folder / str(n), n, peers) for n in numbers]

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` is set to."""
        return ",".join(server.bootstrap for server in self.servers)

    def leader(self, timeout_s: float = 60) -> ZooKeeperServer:
        """The server that leads, waited for."""
        return answer_of(
            lambda: [each for each in self.servers if each.process and each.mode() == "leader"],
            bool, "the ensemble elects a leader", timeout_s,
        )[0]  # fmt: skip

    def __enter__(self) -> Self:
        for server in self.servers:
            server.start()
        self.leader()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()
