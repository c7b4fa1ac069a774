"""The first request of each API: a thread loads the modules that answer it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.api import API_TABLE, FAST, resolve_handler
from kstore.broker.api.requests.loading import modules
from kstore.broker.runtime.membership.soon_needed import SOON_NEEDED
from kstore.clients import AdminClient, Consumer, NewTopic
from kstore.protocol.registry import APIS, encode_request
from tests.beside.waiting import until
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.wire import exchange, read_frame

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "harness" / "told_imports.py"
ASKED = {key: row for key, row in API_TABLE.items() if row.handler != FAST and not row.internal}
FILLED = {"group_id": "g", "transactional_id": "t", "key": "g"}
"""Fields that a request is given, for its handler to come to what it works with."""


class TellingBroker(KstoreBroker):
    """It writes down what its loop's thread loads."""

    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, str(SCRIPT), str(self.told), *rest]

    @property
    def told(self) -> Path:
        """The file with the names of the modules."""
        return self.folder / "told"


class TellingCluster(KstoreCluster):
    def add(self, node_id: int, overrides: Mapping[str, str] | None = None) -> TellingBroker:
        made = super().add(node_id, overrides)
        broker = TellingBroker(made.folder, overrides=made.overrides)
        self.brokers[node_id] = broker
        return broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TellingBroker]:
    running = TellingBroker(tmp_path, overrides={"group.initial.rebalance.delay.ms": "0"})
    try:
        running.start()
        yield running
    finally:
        running.stop()


def ask(broker: KstoreBroker, key: int) -> None:
    """A request with little in it. What is answered is no matter here."""
    request: Any = APIS[key].request()
    for name, value in FILLED.items():
        if hasattr(request, name):
            setattr(request, name, value)
    frame = encode_request(request, API_TABLE[key].min_version, 1, "test")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((broker.host, broker.port), timeout=5) as connection,
    ):
        exchange(connection, frame)


def test_the_loop_loads_no_module_of_a_first_request(broker: TellingBroker) -> None:
    found: dict[str, list[str]] = {}
    for key in ASKED:
        before = len(broker.told.read_text())
        ask(broker, key)
        if loaded := broker.told.read_text()[before:].split():
            found[APIS[key].name] = loaded
    assert not found


def test_the_loop_loads_no_module_of_a_first_role(tmp_path: Path) -> None:
    settings = {
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "2",
        "kstore.check.invariants": "false",
    }
    with TellingCluster(tmp_path, 2, overrides=settings) as cluster:
        told = [broker.folder / "told" for broker in cluster.brokers.values()]
        beside = [path.with_name("told.beside") for path in told]
        until(lambda: all(SOON_NEEDED[-1] in path.read_text() for path in beside), "all is loaded")
        before = [len(path.read_text()) for path in told]
        servers = ",".join(broker.bootstrap for broker in cluster.brokers.values())
        with AdminClient(servers) as admin:
            admin.create_topics([NewTopic("t", 2, 2)])
        with Consumer(servers, group_id="g") as consumer:
            consumer.subscribe(["t"])
            until(lambda: consumer.poll(0.1) is not None and consumer.assignment(), "it reads")
        loaded = [path.read_text()[n:] for path, n in zip(told, before, strict=True)]
        assert loaded == ["", ""]


def test_each_api_is_answered_by_what_its_list_names() -> None:
    for key, row in API_TABLE.items():
        if row.handler == FAST:
            continue
        names = modules(key, row)
        handler = resolve_handler(row).__module__
        assert {handler, APIS[key].request.__module__} <= set(names)
        for name in names:
            assert find_spec(name) is not None, f"{APIS[key].name}: there is no module {name}"


def test_a_request_waits_for_its_modules_with_what_is_behind_it(broker: TellingBroker) -> None:
    keys = (2, 60, 2)  # ListOffsets, DescribeCluster, and one that is loaded by that time
    frames = [
        encode_request(APIS[key].request(), API_TABLE[key].max_version, number, "test")
        for number, key in enumerate(keys)
    ]
    with socket.create_connection((broker.host, broker.port), timeout=20) as connection:
        connection.sendall(b"".join(frames))
        answers = [read_frame(connection) for _ in keys]
    assert [int.from_bytes(answer[:4]) for answer in answers] == [0, 1, 2]
