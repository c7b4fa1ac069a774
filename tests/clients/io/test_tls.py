"""Clients over TLS: required certificates, wrong ones, and listeners without TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.config.definition import ConfigError
from kstore.errors import NetworkError
from kstore.types import TopicPartition
from tests.broker.runtime.security.tls_harness import Authority
from tests.conformance.broker_process import free_port
from tests.conformance.kstore_broker import KstoreBroker

QUICK_MS = 500


@pytest.fixture(scope="module")
def ports(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A broker's address with TLS, which asks for certificates, and its one without."""
    tls = free_port()
    leaf = authority.ca.issue_cert("localhost")  # and for no other name
    leaf.private_key_and_cert_chain_pem.write_to_path(authority.folder / "broker.pem")
    broker = KstoreBroker(tmp_path_factory.mktemp("broker"))
    broker.overrides = {
        "listeners": f"PLAINTEXT://{broker.bootstrap},SSL://localhost:{tls}",
        **authority.broker_settings(client_auth="required"),
    }
    with broker:
        yield f"localhost:{tls}", broker.bootstrap


def settings(address: str, authority: Authority, **more: str) -> dict[str, str]:
    """A client's, with a certificate."""
    found = authority.broker_settings() | {
        "bootstrap.servers": address, "security.protocol": "SSL",
        "ssl.keystore.location": str(authority.folder / "client.pem"),
    }  # fmt: skip
    return found | {name.replace("_", "."): value for name, value in more.items()}


def test_all_clients_over_tls(ports: tuple[str, str], authority: Authority) -> None:
    with AdminClient(settings(ports[0], authority)) as admin:
        admin.create_topics([NewTopic("secret", 1, 1)])
    big = bytes(range(256)) * 2000  # more than one TLS record and one read
    with Producer(settings(ports[0], authority)) as producer:
        deliveries = [producer.send("secret", big, partition=0) for _ in range(10)]
        producer.flush()
        assert [delivery.result() for delivery in deliveries] == list(range(10))
    with Consumer(settings(ports[0], authority, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition("secret", 0)])
        values: list[bytes | None] = []
        while len(values) < 10:
            values += [record.value for record in consumer.poll(60_000)]
    assert values == [big] * 10


def fails(config: dict[str, str]) -> str:
    """The error of a client that cannot start."""
    with (
        AdminClient(config, default_api_timeout_ms=QUICK_MS) as admin,
        pytest.raises(NetworkError) as caught,
    ):
        admin.list_topics()
    return str(caught.value)


def test_a_broker_that_is_not_trusted_is_not_spoken_to(
    ports: tuple[str, str], authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path).ca_path
    stranger = settings(ports[0], authority, ssl_truststore_location=str(other))
    text = fails(stranger)
    assert f"no TLS connection to {ports[0]}" in text
    assert "certificate" in text
    by_another_name = settings(ports[0].replace("localhost", "127.0.0.1"), authority)
    assert "certificate is not valid for '127.0.0.1'" in fails(by_another_name)


def test_listeners_that_speak_something_else_are_named(
    ports: tuple[str, str], authority: Authority
) -> None:
    assert "does not speak TLS" in fails(settings(ports[1], authority))
    assert "security.protocol" in fails({"bootstrap.servers": ports[0]})


def test_a_store_that_is_not_there_is_named_before_anything_is_asked(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"ssl.truststore.location is '/nowhere'"):
        AdminClient(settings("h:1", authority, ssl_truststore_location="/nowhere"))
