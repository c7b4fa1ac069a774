"""Users who are deleted or get another password lose their connections, on each broker; a fetch
that waits does not outlive its session.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

from kstore.net.sasl_client import make_client
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kstore.testing import Broker, Cluster
from tests.broker.runtime.security.sasl_harness import PASSWORD, RawClient, addresses, plain_users
from tests.record_requests import fetch_part, fetch_request, only

PATIENCE_S = 30.0
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SHA_256, SHA_512 = admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512
SETTINGS = {
    "listeners": "LOCAL://localhost:0,OPEN://localhost:0",
    "listener.security.protocol.map": "LOCAL:PLAINTEXT,OPEN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "LOCAL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.open.plain.sasl.jaas.config": plain_users("alice", "bob", "mallory"),
    "listener.name.open.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    "listener.name.open.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("users"), SETTINGS) as broker:
        yield broker


def logged_in(address: str, mechanism: str, user: str, password: str = PASSWORD) -> RawClient:
    """A connection that has shown who it is."""
    client = RawClient(address)
    login = make_client(
        {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    )
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    token: bytes | None = login.first()
    while token is not None:
        response = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert response.error_code == 0
        token = login.step(response.auth_bytes) if mechanism != "PLAIN" else None
    return client


def logged_in_soon(address: str, mechanism: str, user: str, password: str) -> RawClient:
    """The same at a broker that hears of the user a moment later."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return logged_in(address, mechanism, user, password)
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def lives(client: RawClient) -> bool:
    return client.ask(ApiVersionsRequest(), 0) is not None


def admin_of(broker: Broker) -> Any:
    return admin.AdminClient({"bootstrap.servers": addresses(broker)["LOCAL"]})


def alter_scram(client: Any, *rows: Any) -> None:
    for row in rows:  # librdkafka takes a user once in a request
        for asked in client.alter_user_scram_credentials([row]).values():
            asked.result(PATIENCE_S)


def password(user: str, text: str, mechanism: Any = SHA_256) -> Any:
    info = admin.ScramCredentialInfo(mechanism, 4096)
    return admin.UserScramCredentialUpsertion(user, info, text.encode())


def alter_config(client: Any, whose: str, name: str, value: str) -> None:
    row = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
    kind = admin.ConfigResource.Type.BROKER
    change = admin.ConfigResource(kind, whose, incremental_configs=[row])
    for asked in client.incremental_alter_configs([change]).values():
        asked.result(PATIENCE_S)


def test_who_is_deleted_or_gets_another_password_is_let_go(broker: Broker) -> None:
    """The connections of others, and the user's by another mechanism, stay."""
    client, where = admin_of(broker), addresses(broker)["OPEN"]
    alter_scram(
        client, password("carol", "first"), password("carol", "first", SHA_512),
        password("dave", "first"),
    )  # fmt: skip
    with (
        logged_in(where, "SCRAM-SHA-256", "carol", "first") as carol,
        logged_in(where, "SCRAM-SHA-512", "carol", "first") as other,
        logged_in(where, "SCRAM-SHA-256", "dave", "first") as dave,
    ):
        alter_scram(client, password("carol", "second"))
        assert carol.frame() is None
        assert lives(dave)
        alter_scram(client, admin.UserScramCredentialDeletion("dave", SHA_256))
        assert dave.frame() is None
        assert lives(other)
    assert "User:dave was deleted or has a new password" in broker.output()


def test_users_of_plain_are_let_go_too_unless_the_setting_is_off(broker: Broker) -> None:
    client, where = admin_of(broker), addresses(broker)["OPEN"]
    users = "listener.name.open.plain.sasl.jaas.config"
    ends = "kstore.end.sessions.of.changed.users"
    with (
        logged_in(where, "PLAIN", "mallory") as mallory,
        logged_in(where, "PLAIN", "bob") as bob,
        logged_in(where, "PLAIN", "alice") as alice,
    ):
        alter_config(client, "1", users, plain_users("alice", "bob"))
        assert mallory.frame() is None
        assert lives(bob)
        alter_config(client, "1", ends, "false")
        alter_config(client, "1", users, plain_users("alice"))
        assert lives(bob)
        alter_config(client, "1", ends, "true")
        assert bob.frame() is None
        assert lives(alice)


def test_a_fetch_that_waits_ends_with_its_session(broker: Broker) -> None:
    """It may only be renewed from then on; what was asked before is answered."""
    client, where = admin_of(broker), addresses(broker)["OPEN"]
    [made] = client.create_topics([admin.NewTopic("waits", 1)]).values()
    made.result(PATIENCE_S)
    alter_config(client, "1", "listener.name.open.connections.max.reauth.ms", "1500")
    part = fetch_part(max_bytes=1000)
    asked = fetch_request("waits", part, max_wait_ms=2**31 - 1, max_bytes=1000)
    with logged_in(where, "PLAIN", "alice") as alice:
        response = alice.ask(asked, 12)
        assert only(response).error_code == 0
        assert not lives(alice)


@pytest.mark.slow
def test_every_broker_of_a_cluster_lets_them_go(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2, SETTINGS) as cluster:
        with urllib.request.urlopen(f"{cluster[1].http_url}/cluster", timeout=PATIENCE_S) as answer:
            rows = json.loads(answer.read())["brokers"]
        ends = [end for row in rows for end in row["endpoints"] if end["listener"] == "OPEN"]
        one, other = (f"{end['host']}:{end['port']}" for end in ends)
        client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        alter_scram(client, password("carol", "first"))
        with (
            logged_in(one, "SCRAM-SHA-256", "carol", "first") as here,
            logged_in_soon(other, "SCRAM-SHA-256", "carol", "first") as there,
        ):
            alter_scram(client, password("carol", "second"))
            assert here.frame() is None
            assert there.frame() is None
