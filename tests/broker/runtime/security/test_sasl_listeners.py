"""Listeners with SASL, in a separate broker process: unmodified clients with every mechanism,
sessions that are reauthenticated, and clients that do not authenticate.
"""

from __future__ import annotations

import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from itertools import product, starmap
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin

from kstore.clients import AdminClient
from kstore.errors import ErrorCode
from kstore.protocol.registry import encode_request
from kstore.testing import Broker, BrokerError, Cluster
from tests.beside.librdkafka import SHA_256, SHA_512, alter_broker, alter_scram, scram_user
from tests.beside.waiting import until
from tests.broker.runtime.security.sasl_harness import (
    PASSWORD,
    PATIENCE_S,
    RawClient,
    Signer,
    addresses,
    listeners,
    plain_users,
    users_of,
)
from tests.broker.runtime.security.tls_harness import Authority, consume, produce
from tests.broker.runtime.security.token_harness import log_in as logged_in
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask

BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MOST_UNAUTHENTICATED = 20


@pytest.fixture(scope="module")
def broker(
    authority: Authority, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    settings = listeners(
        LOCAL="PLAINTEXT", OPEN="SASL_PLAINTEXT", SAFE="SASL_SSL", SHORT="SASL_PLAINTEXT",
        CERT="SSL", HASTY="SASL_PLAINTEXT",
    ) | {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": signer.path.as_uri(),
        "sasl.oauthbearer.expected.audience": "other,kstore",
        "sasl.oauthbearer.expected.issuer": "us",
        "connection.failed.authentication.delay.ms": "10",
        "ssl.client.auth": "required",  # a setting that SASL listeners do not use
        "listener.name.cert.ssl.client.auth": "requested",
        "listener.name.cert.ssl.principal.mapping.rules": r"RULE:^.*O=([^,]+).*$/$1/L,DEFAULT",
        "listener.name.short.connections.max.reauth.ms": "1500",
        "listener.name.hasty.sasl.enabled.mechanisms": "PLAIN",
        "kstore.max.unauthenticated.connections": str(MOST_UNAUTHENTICATED),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:bob;User:trustme v1.2.1",
    }  # fmt: skip
    for name in ("open", "safe", "short", "hasty"):
        settings |= users_of(name, "alice", "bob", "mallory")
        settings[f"listener.name.{name}.oauthbearer.sasl.jaas.config"] = f"{BEARER} required;"
    folder = tmp_path_factory.mktemp("sasl")
    with Broker(folder, settings | authority.broker_settings()) as broker:
        client = admin.AdminClient({"bootstrap.servers": addresses(broker)["LOCAL"]})
        users = product(("alice", "mallory"), (PASSWORD,), (SHA_256, SHA_512))
        alter_scram(client, *starmap(scram_user, users))
        yield broker


def client_settings(
    address: str, mechanism: str, signer: Signer, *, user: str = "alice", password: str = PASSWORD
) -> dict[str, Any]:
    found = {
        "bootstrap.servers": address, "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism, "reconnect.backoff.max.ms": 200,
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        claims = {} if password == PASSWORD else {"aud": "nobody"}
        found["oauth_cb"] = lambda _: (signer.token(user, **claims), time.time() + 3600)
    else:
        found |= {"sasl.username": user, "sasl.password": password}
    return found


def refusal(settings: dict[str, Any]) -> str:
    """The first error that a client gets when it tries to write."""
    heard: list[str] = []
    producer = confluent_kafka.Producer(
        {**settings, "error_cb": lambda error: heard.append(str(error)), "log_level": 0,
         "message.timeout.ms": 20_000}
    )  # fmt: skip
    producer.produce(
        "refused", b"v", on_delivery=lambda error, _: heard.append(f"delivery: {error}")
    )
    until(lambda: producer.poll(0.05) >= 0 and bool(heard))
    producer.purge()
    producer.flush(1)
    return heard[0]


# ---- unmodified clients ----


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_writes_and_reads_by_each_mechanism(
    broker: Broker, signer: Signer, mechanism: str
) -> None:
    settings = client_settings(addresses(broker)["OPEN"], mechanism, signer)
    topic = f"by-{mechanism}"
    produce(settings, topic, [b"1", b"2"])
    assert consume(settings, topic, 2) == [b"1", b"2"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_can_not_show_who_it_is_is_refused(
    broker: Broker, signer: Signer, mechanism: str
) -> None:
    settings = client_settings(addresses(broker)["OPEN"], mechanism, signer, password="guess")
    assert "SASL authentication error" in refusal(settings)
    assert PASSWORD not in broker.output()
    assert "guess" not in broker.output()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_user_is_the_principal_that_the_authorizer_asks_about(
    broker: Broker, signer: Signer, mechanism: str
) -> None:
    """mallory is a user but not a super user."""
    settings = client_settings(addresses(broker)["OPEN"], mechanism, signer, user="mallory")
    assert "AUTHORIZATION" in refusal(settings).upper()


def test_sasl_goes_over_tls(authority: Authority, broker: Broker, signer: Signer) -> None:
    settings = client_settings(addresses(broker)["SAFE"], "SCRAM-SHA-512", signer)
    settings |= {"security.protocol": "sasl_ssl", "ssl.ca.location": str(authority.ca_path)}
    produce(settings, "safe", [b"1"])
    assert consume(settings, "safe", 1) == [b"1"]


def test_a_certificate_names_its_owner(authority: Authority, broker: Broker) -> None:
    """By the mapping rules; a client without a certificate is anonymous."""
    address = addresses(broker)["CERT"]
    produce(authority.client_settings(address, certificate=True), "cert", [b"1"])
    produce(authority.client_settings(address), "cert", [b"2"])


# ---- sessions (KIP-368) ----


def test_a_session_that_is_not_renewed_ends(broker: Broker) -> None:
    with RawClient(addresses(broker)["SHORT"]) as client:
        assert log_in(client, "alice").session_lifetime_ms == 1500
        assert client.ask(Ask.Metadata(topics=[]), 12) is not None
        time.sleep(1.6)
        assert client.ask(Ask.Metadata(topics=[]), 12) is None


def test_a_session_is_renewed_by_the_same_user_alone(broker: Broker) -> None:
    with RawClient(addresses(broker)["SHORT"]) as client:
        log_in(client, "alice")
        assert log_in(client, "alice").error_code == 0
        assert client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1).error_code == 34
        time.sleep(1.6)  # the session is over and may still be reauthenticated
        answer = log_in(client, "bob")
        assert answer.error_code == 58
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert client.frame() is None


@pytest.mark.slow
def test_a_client_that_renews_its_session_keeps_its_connection(
    broker: Broker, signer: Signer
) -> None:
    settings = client_settings(addresses(broker)["SHORT"], "SCRAM-SHA-256", signer)
    troubles: list[Any] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": troubles.append})
    failed: list[Any] = []
    for number in range(40):
        producer.produce(
            "renewed", b"%d" % number, on_delivery=lambda error, _: failed.append(error)
        )
        producer.flush(PATIENCE_S)
        time.sleep(0.1)
    assert set(failed) == {None}
    assert troubles == []


def test_a_session_ends_with_its_token(broker: Broker, signer: Signer) -> None:
    with RawClient(addresses(broker)["OPEN"]) as client:
        client.ask(Ask.SaslHandshake(mechanism="OAUTHBEARER"), 1)
        token = f"n,,\x01auth=Bearer {signer.token('alice', life_s=100)}\x01\x01".encode()
        answer = client.ask(Ask.SaslAuthenticate(auth_bytes=token), 2)
        assert answer.error_code == 0
        assert 90_000 < answer.session_lifetime_ms <= 100_000


@pytest.mark.parametrize(
    "claims",
    [{"life_s": -60}, {"iss": "them"}, {"aud": "x"}, {"sub": " "}, {"sub": None}, {"scope": ""}],
)
def test_a_token_that_does_not_hold_is_refused(
    broker: Broker, signer: Signer, claims: dict[str, Any]
) -> None:
    made = signer.token("alice", **claims)
    for token in (made, made[:-8] + "AAAAAAAA", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."):
        with RawClient(addresses(broker)["OPEN"]) as client:
            client.ask(Ask.SaslHandshake(mechanism="OAUTHBEARER"), 1)
            message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
            answer = client.ask(Ask.SaslAuthenticate(auth_bytes=message), 2)
            assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
            answer = client.ask(Ask.SaslAuthenticate(auth_bytes=b"\x01"), 2)
            assert (answer.error_code, answer.error_message) == (58, '{"status":"invalid_token"}')
            assert client.frame() is None


# ---- before the authentication ----


def log_in(client: RawClient, user: str) -> Any:
    assert client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{user}\0{PASSWORD}".encode()
    return client.ask(Ask.SaslAuthenticate(auth_bytes=token), 2)


def test_a_size_that_nobody_needs_ends_the_connection(broker: Broker) -> None:
    with RawClient(addresses(broker)["OPEN"]) as client:
        client.sock.sendall(struct.pack(">i", 600_000))
        assert client.frame() is None
    until(lambda: "sasl.server.max.receive.size" in broker.output())


def test_who_asks_for_kstores_fields_before_authentication_gets_them(
    broker: Broker, signer: Signer
) -> None:
    where = addresses(broker)
    produce(client_settings(where["OPEN"], "PLAIN", signer), "fields", [b"v"])
    settings = {
        "bootstrap.servers": where["OPEN"], "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.jaas.config":
            f'x.PlainLoginModule required username="alice" password="{PASSWORD}";',
    }  # fmt: skip
    with AdminClient(settings) as client:
        [topic] = client.describe_topics(["fields"])
        assert [row.partition_epoch for row in topic.partitions] > [0]


def test_names_can_not_write_lines_into_the_log(broker: Broker) -> None:
    evil = "eve\n2026-01-01 INFO all is well\x1b[2J"
    with RawClient(addresses(broker)["OPEN"]) as client:
        client.ask(Ask.SaslHandshake(mechanism=evil), 1, client_id=evil)
    with RawClient(addresses(broker)["OPEN"]) as client:
        hello = Ask.ApiVersions(client_software_name="x", client_software_version="1")
        client.ask(hello, 3, client_id=evil)
        client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1)
        client.ask(Ask.SaslAuthenticate(auth_bytes=f"\0{evil}\0x".encode()), 2)
    until(lambda: broker.output().count("eve") >= 2)
    assert not any(line.startswith("2026-01-01 INFO all") for line in broker.output().splitlines())
    assert "\x1b" not in broker.output()


def test_idle_strangers_make_room_for_others(broker: Broker, signer: Signer) -> None:
    """TLS handshakes that stop halfway count too."""
    where = addresses(broker)
    strangers: list[socket.socket] = []
    try:
        for number in range(MOST_UNAUTHENTICATED * 2):
            host, _, port = where["OPEN" if number % 2 else "SAFE"].rpartition(":")
            strangers.append(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
        until(lambda: "newer connections are waiting" in broker.output())
        produce(client_settings(where["OPEN"], "PLAIN", signer), "room", [b"v"])
        for stranger in strangers[: MOST_UNAUTHENTICATED // 2]:
            assert stranger.recv(1) == b""
    finally:
        for stranger in strangers:
            stranger.close()


def test_who_takes_too_long_is_let_go(authority: Authority, tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0,SSL://localhost:0",
        "sasl.enabled.mechanisms": "PLAIN", "kstore.authentication.timeout.ms": "200",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users("alice"),
    }  # fmt: skip
    with Broker(tmp_path, settings | authority.broker_settings()) as broker:
        where = addresses(broker)
        for name in ("SASL_PLAINTEXT", "SSL"):
            with RawClient(where[name]) as client:
                assert client.frame() is None
        until(lambda: broker.output().count("kstore.authentication.timeout.ms") == 2)


# ---- metrics ----


def counted(broker: Broker) -> dict[str, int]:
    """Every reported counter of authentications, with its labels."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if "authentication_total{" in line]
    return {name: int(value) for name, _, value in rows if name.startswith("kstore_")}


def test_who_shows_who_it_is_and_who_does_not_is_counted_by_listener_and_mechanism(
    authority: Authority, broker: Broker
) -> None:
    where, before = addresses(broker), counted(broker)
    with RawClient(where["SHORT"]) as client:
        log_in(client, "alice")
        log_in(client, "alice")
    with RawClient(where["SHORT"]) as client:
        log_in(client, "alice")
        assert log_in(client, "bob").error_code == 58
    with RawClient(where["SHORT"]) as client:
        client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1)
        client.ask(Ask.SaslAuthenticate(auth_bytes=b"\0alice\0guess"), 2)
    for mechanism in ('x"} 1', "GSSAPI"):
        with RawClient(where["SHORT"]) as client:
            client.ask(Ask.SaslHandshake(mechanism=mechanism), 1)
    with RawClient(where["SHORT"]):
        pass  # the client disconnects
    produce(authority.client_settings(where["CERT"]), "counted", [b"1"])
    with RawClient(where["CERT"]) as client:
        client.sock.sendall(b"no TLS" * 100)
        client.frame()
    expected = {
        'successful_authentication_total{listener="SHORT",mechanism="PLAIN"}': 2,
        'successful_reauthentication_total{listener="SHORT",mechanism="PLAIN"}': 1,
        'failed_reauthentication_total{listener="SHORT",mechanism="PLAIN"}': 1,
        'failed_authentication_total{listener="SHORT",mechanism="PLAIN"}': 1,
        'failed_authentication_total{listener="SHORT",mechanism="none"}': 2,
        'failed_authentication_total{listener="CERT",mechanism="SSL"}': 1,
    }

    def more() -> dict[str, int]:
        found = {
            name.removeprefix("kstore_"): count - before.get(name, 0)
            for name, count in counted(broker).items()
        }
        return {name: count for name, count in found.items() if count}

    until(lambda: more().items() >= expected.items())
    made = more()
    assert made.pop('successful_authentication_total{listener="CERT",mechanism="SSL"}') >= 1
    assert made == expected
    assert before['kstore_failed_reauthentication_total{listener="SAFE",mechanism="PLAIN"}'] == 0


# ---- settings ----


def test_users_are_changed_at_run_time(broker: Broker, signer: Signer) -> None:
    where = addresses(broker)
    client = admin.AdminClient({"bootstrap.servers": where["LOCAL"]})
    produce(client_settings(where["HASTY"], "PLAIN", signer), "hasty", [b"1"])
    alter_broker(client, "listener.name.hasty.plain.sasl.jaas.config", plain_users("bob"))
    settings = client_settings(where["HASTY"], "PLAIN", signer)
    assert "Invalid username or password" in refusal(settings)
    produce(client_settings(where["HASTY"], "PLAIN", signer, user="bob"), "hasty", [b"2"])


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "must list the users of PLAIN"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs the URL"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER",
          "sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere"}, "no JWK set could be read"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256",
          "listener.name.sasl_plaintext.scram-sha-256.sasl.server.callback.handler.class": "a.B"},
         "a Java class can't be loaded"),
    ],
)  # fmt: skip
def test_a_listener_without_what_it_needs_does_not_start(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(BrokerError, match=words):
        Broker(tmp_path, {"listeners": "SASL_PLAINTEXT://localhost:0"} | settings).start()


# ---- between brokers ----


@pytest.mark.slow
def test_brokers_show_each_other_who_they_are(authority: Authority, tmp_path: Path) -> None:
    """Over TLS and SASL, while their sessions end again and again."""
    prefix = "listener.name.among"
    settings = authority.broker_settings() | {
        "listeners": "PLAINTEXT://localhost:0,AMONG://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,AMONG:SASL_SSL",
        "inter.broker.listener.name": "AMONG", "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": plain_users("broker", own="broker"),
        f"{prefix}.connections.max.reauth.ms": "1000", "min.insync.replicas": "2",
    }  # fmt: skip
    with Cluster(tmp_path, 3, settings) as cluster:
        clients = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
        for number in range(30):
            produce(clients, "t", [b"%d" % number])
            time.sleep(0.1)
        assert len(consume({"bootstrap.servers": cluster.bootstrap_servers}, "t", 30)) == 30


@pytest.mark.slow
def test_a_client_with_the_right_of_brokers_is_none_where_all_share_a_listener(
    tmp_path: Path,
) -> None:
    """Brokers forward the requests of clients under the names of the clients; only CLUSTER_ACTION
    allows that.
    """
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0", "sasl.enabled.mechanisms": "PLAIN",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config":
            plain_users("broker", "root", "eve", own="broker"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:broker",
    }  # fmt: skip
    forged = Ask.Envelope(
        request_data=encode_request(create("forged"), 7, 0, "x")[4:],
        request_principal=b"User:root", client_host_address=b"127.0.0.1")  # fmt: skip
    rule = {
        "resource_type": 4, "resource_name": "kafka-cluster", "resource_pattern_type": 3,
        "principal": "User:eve", "host": "*", "operation": 9, "permission_type": 3}  # fmt: skip
    with Cluster(tmp_path, 2, settings) as cluster:
        for broker in cluster.members:
            with logged_in(broker.bootstrap_servers, "root") as root:
                made = root.ask(create(f"by-{broker.node_id}"), 7)
                assert made.topics[0].error_code == 0
                assert root.ask(Ask.CreateAcls(creations=[rule]), 3).results[0].error_code == 0
        for broker in cluster.members:
            with logged_in(broker.bootstrap_servers, "eve") as eve:
                refused = eve.ask(forged, 0)
                assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
