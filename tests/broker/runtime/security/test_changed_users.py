"""Users who are deleted or get another password lose their connections and fetches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.testing import Broker, Cluster
from tests.beside.librdkafka import (
    SHA_256,
    SHA_512,
    TIMEOUT_S,
    alter_broker,
    alter_scram,
    scram_user,
)
from tests.beside.waiting import until
from tests.broker.runtime.security.sasl_harness import (
    RawClient,
    addresses,
    ends,
    listeners,
    plain_users,
    users_of,
)
from tests.broker.runtime.security.token_harness import log_in
from tests.record_requests import fetch_part, fetch_request, only

SETTINGS = {
    **listeners(LOCAL="PLAINTEXT", OPEN="SASL_PLAINTEXT"),
    "inter.broker.listener.name": "LOCAL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    **users_of("open", "alice", "bob", "mallory"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("users"), SETTINGS) as broker:
        yield broker


def lives(client: RawClient) -> bool:
    return client.ask(ApiVersionsRequest(), 0) is not None


def admin_of(broker: Broker) -> Any:
    return admin.AdminClient({"bootstrap.servers": addresses(broker)["LOCAL"]})


def test_who_is_deleted_or_gets_another_password_is_let_go(broker: Broker) -> None:
    """Connections of other users, and those of the user by another mechanism, stay open."""
    client, where = admin_of(broker), addresses(broker)["OPEN"]
    alter_scram(
        client, scram_user("carol", "first"), scram_user("carol", "first", SHA_512),
        scram_user("dave", "first"),
    )  # fmt: skip
    with (
        log_in(where, "carol", "first", "SCRAM-SHA-256") as carol,
        log_in(where, "carol", "first", "SCRAM-SHA-512") as other,
        log_in(where, "dave", "first", "SCRAM-SHA-256") as dave,
    ):
        alter_scram(client, scram_user("carol", "second"))
        assert carol.frame() is None
        assert lives(dave)
        alter_scram(client, admin.UserScramCredentialDeletion("dave", SHA_256))
        assert dave.frame() is None
        assert lives(other)
    told = "User:dave was deleted or has a new password"
    until(lambda: told in broker.output(), "it is logged")


def test_users_of_plain_are_let_go_too_unless_the_setting_is_off(broker: Broker) -> None:
    client, where = admin_of(broker), addresses(broker)["OPEN"]
    users = "listener.name.open.plain.sasl.jaas.config"
    ends = "kstore.end.sessions.of.changed.users"
    with (
        log_in(where, "mallory") as mallory,
        log_in(where, "bob") as bob,
        log_in(where, "alice") as alice,
    ):
        alter_broker(client, users, plain_users("alice", "bob"))
        assert mallory.frame() is None
        assert lives(bob)
        alter_broker(client, ends, "false")
        alter_broker(client, users, plain_users("alice"))
        assert lives(bob)
        alter_broker(client, ends, "true")
        assert bob.frame() is None
        assert lives(alice)


@pytest.mark.slow
def test_a_fetch_that_waits_ends_with_its_session(broker: Broker) -> None:
    """From then on the connection may only be reauthenticated; earlier requests are still
    answered.
    """
    client, where = admin_of(broker), addresses(broker)["OPEN"]
    [made] = client.create_topics([admin.NewTopic("waits", 1)]).values()
    made.result(TIMEOUT_S)
    alter_broker(client, "listener.name.open.connections.max.reauth.ms", "1500")
    part = fetch_part(max_bytes=1000)
    asked = fetch_request("waits", part, max_wait_ms=2**31 - 1, max_bytes=1000)
    with log_in(where, "alice") as alice:
        response = alice.ask(asked, 12)
        assert only(response).error_code == 0
        assert not lives(alice)


@pytest.mark.slow
def test_every_broker_of_a_cluster_lets_them_go(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2, SETTINGS) as cluster:
        one, other = (where for name, where in ends(cluster[1]) if name == "OPEN")
        client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        alter_scram(client, scram_user("carol", "first"))
        first = partial(log_in, user="carol", password="first", mechanism="SCRAM-SHA-256")
        until(lambda: first(other).close() is None, "the other broker has heard of the user")
        with first(one) as here, first(other) as there:
            alter_scram(client, scram_user("carol", "second"))
            assert here.frame() is None
            assert there.frame() is None
