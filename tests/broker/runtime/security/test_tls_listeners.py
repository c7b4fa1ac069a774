"""Listeners with TLS: unmodified clients, certificates, changing keys, and between brokers."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.registry import encode_request
from kstore.testing import Broker, BrokerError, Cluster
from tests.beside.librdkafka import alter_broker
from tests.beside.waiting import until
from tests.broker.runtime.security.sasl_harness import addresses
from tests.broker.runtime.security.tls_harness import TIMEOUT_S, Authority, consume, produce

PASSWORD = "not-to-be-told"


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "listeners": "SSL://localhost:0,PLAINTEXT://localhost:0", "message.max.bytes": 9_000_000
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("tls")
    with Broker(folder, settings | authority.broker_settings()) as broker:
        yield broker


def test_what_is_written_with_tls_is_read_without_and_the_other_way_round(
    authority: Authority, broker: Broker
) -> None:
    secure = authority.client_settings(broker.address)
    plain = {"bootstrap.servers": addresses(broker)["PLAINTEXT"]}
    small = [b"%d" % number for number in range(3000)]
    large = [bytes([number]) * 4_000_000 for number in range(4)]
    produce(secure, "both", small)
    produce(plain, "both", large)
    produce(secure, "both", large)
    expected = [*small, *large, *large]
    assert consume(secure, "both", len(expected)) == expected
    assert consume(plain, "both", len(expected)) == expected


def test_who_does_not_speak_tls_is_let_go(authority: Authority, broker: Broker) -> None:
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock:
        sock.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff" * 20)
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
    context = ssl.create_default_context(cafile=str(authority.ca_path))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as link,
    ):
        assert link.version() == "TLSv1.2"


@pytest.mark.slow
def test_a_listener_has_keys_of_its_own_and_asks_for_certificates(
    authority: Authority, tmp_path: Path
) -> None:
    own = authority.broker_settings(client_auth="required", enabled_protocols="TLSv1.3")
    settings = {f"listener.name.secure.{name}": value for name, value in own.items()} | {
        "listeners": "SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "SECURE:SSL",
    }
    with Broker(tmp_path, settings) as broker:
        known = authority.client_settings(broker.address, certificate=True)
        produce(known, "t", [b"v"])
        errors: list[Any] = []
        stranger = confluent_kafka.Producer(
            {**authority.client_settings(broker.address), "error_cb": errors.append}
        )
        deadline = time.monotonic() + TIMEOUT_S
        while not errors and time.monotonic() < deadline:
            stranger.poll(0.1)
        assert errors
        with pytest.raises(confluent_kafka.KafkaException):
            stranger.list_topics(timeout=1)
        assert consume(known, "t", 1) == [b"v"]


@pytest.mark.slow
def test_new_keys_are_taken_over_and_old_connections_stay(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    store = tmp_path / "broker.pem"
    store.write_bytes((authority.folder / "broker.pem").read_bytes())
    settings = {"listeners": "SSL://localhost:0"} | authority.broker_settings()
    with Broker(tmp_path / "b", settings | {"ssl.keystore.location": str(store)}) as broker:
        old = confluent_kafka.Producer(authority.client_settings(broker.address))
        old.list_topics(timeout=TIMEOUT_S)
        made = broker.output().count("connections")
        store.write_bytes(b"no key")
        until(lambda: "the previous keys stay in use" in broker.output())
        produce(authority.client_settings(broker.address), "t", [b"1"])
        other.issue(store)
        until(lambda: "the new ones are in use" in broker.output())
        produce(other.client_settings(broker.address), "t", [b"2"])
        old.produce("t", b"3")
        assert old.flush(TIMEOUT_S) == 0
        assert made == broker.output().count("connections")
        assert consume(other.client_settings(broker.address), "t", 3) == [b"1", b"2", b"3"]


def test_a_listeners_keys_are_changed_at_run_time(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    settings = {"listeners": "SSL://localhost:0"} | authority.broker_settings()
    with Broker(tmp_path / "b", settings) as broker:
        admin = AdminClient(authority.client_settings(broker.address))
        keys = str(other.folder / "broker.pem")
        alter_broker(admin, "listener.name.ssl.ssl.keystore.location", keys)
        produce(other.client_settings(broker.address), "t", [b"1"])
        assert "the new ones are in use" in broker.output()


@pytest.mark.slow
def test_certificates_and_versions_are_asked_for_at_run_time(
    authority: Authority, tmp_path: Path
) -> None:
    """Changes apply to connections that are made from then on, including the very next one; open
    connections stay. After a restart they apply to the first client.
    """
    settings = {"listeners": "SSL://localhost:0"} | authority.broker_settings()
    with Broker(tmp_path / "b", settings) as broker:
        admin = AdminClient(authority.client_settings(broker.address))
        alter_broker(admin, "listener.name.ssl.ssl.enabled.protocols", "TLSv1.2")
        assert _version(authority, broker, certificate=False) == "TLSv1.2"
        alter_broker(admin, "listener.name.ssl.ssl.client.auth", "required")
        with pytest.raises(OSError):
            _version(authority, broker, certificate=False)
        assert _version(authority, broker, certificate=True) == "TLSv1.2"
        admin.list_topics(timeout=TIMEOUT_S)
        port = broker.address.rpartition(":")[2]
    settings["listeners"] = f"SSL://localhost:{port}"
    with Broker(tmp_path / "b", settings) as broker:
        with pytest.raises(OSError):
            _version(authority, broker, certificate=False)
        assert _version(authority, broker, certificate=True) == "TLSv1.2"


@pytest.mark.parametrize(
    ("name", "value", "whose", "words"),
    [
        ("listener.name.ssl.ssl.enabled.protocols", "TLSv1.9", "1", "it must be any of TLSv1.2"),
        ("listener.name.ssl.ssl.client.auth", "maybe", "1", "ssl.client.auth"),
        ("listener.name.ssl.ssl.keystore.location", "/nowhere", "1", "can't be read"),
        ("ssl.client.auth", "required", "1", "is set for each listener"),
    ],
)
def test_what_a_listener_can_not_take_over_is_refused(
    authority: Authority, broker: Broker, name: str, value: str, whose: str, words: str
) -> None:
    admin = AdminClient(authority.client_settings(broker.address))
    with pytest.raises(confluent_kafka.KafkaException, match=words):
        alter_broker(admin, name, value, whose)
    assert _version(authority, broker, certificate=False) == "TLSv1.3"


def _version(authority: Authority, broker: Broker, *, certificate: bool) -> str | None:
    """The TLS version of a new connection that the broker answers."""
    context = ssl.create_default_context(cafile=str(authority.ca_path))
    if certificate:
        context.load_cert_chain(authority.folder / "client.pem")
    host, _, port = broker.address.rpartition(":")
    asked = encode_request(ApiVersionsRequest(), 0, 1, "me")
    with (
        socket.create_connection((host, int(port)), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        link.sendall(asked)
        if not link.recv(4):
            raise ConnectionResetError("the broker has closed the connection")
        return link.version()


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "SSL://localhost:0"}, "needs a key"),
        ({"security.inter.broker.protocol": "SSL"}, "which no listener has"),
        ({"listeners": "SSL://localhost:0", "ssl.keystore.type": "PEM",
          "ssl.keystore.location": "/nowhere", "ssl.key.password": PASSWORD}, "can't be read"),
    ],
)  # fmt: skip
def test_a_broker_without_the_keys_it_needs_does_not_start(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    broker = Broker(tmp_path, settings)
    with pytest.raises(BrokerError, match=words):
        broker.start()
    assert PASSWORD not in broker.output()


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "inter.broker.listener.name",
        pytest.param("security.inter.broker.protocol", marks=pytest.mark.thorough),
    ],
)
def test_brokers_speak_tls_among_themselves(authority: Authority, tmp_path: Path, how: str) -> None:
    """Everything uses TLS: registration, requests of the controller, replication, forwarding."""
    settings = authority.broker_settings(client_auth="required") | {
        "listeners": "PLAINTEXT://localhost:0,SSL://localhost:0", how: "SSL",
        "min.insync.replicas": "2",
    }  # fmt: skip
    with Cluster(tmp_path, 3, settings) as cluster:
        clients = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
        produce(clients, "t", [b"%d" % number for number in range(500)])
        admin = confluent_kafka.Producer(clients)
        leader = admin.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions[0].leader
        cluster[leader].kill()
        produce(clients, "t", [b"%d" % number for number in range(500, 600)])
        cluster.start()
        assert len(consume({"bootstrap.servers": cluster.bootstrap_servers}, "t", 600)) == 600
