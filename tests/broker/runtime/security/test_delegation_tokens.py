"""Delegation tokens on a single broker and in a cluster: who can log in with one, how long, and
what is stored. tests/conformance/security/test_delegation_tokens.py compares them with Kafka's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.stores import open_own_store
from kstore.broker.coordination.zookeeper_store import ZooKeeperStore
from kstore.broker.runtime.security.delegation_tokens import DelegationTokens
from kstore.broker.state.security.delegation_tokens import DelegationToken, Principal
from kstore.broker.state.security.token_nodes import parse
from kstore.clients import (
    AdminClient,
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    SaslAuthenticationFailedError,
)
from kstore.errors import ErrorCode
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.testing import Broker, Cluster
from tests.beside.waiting import until
from tests.broker.runtime.security.sasl_harness import (
    PATIENCE_S,
    RawClient,
    addresses,
    ends,
    listeners,
    plain_login,
)
from tests.broker.runtime.security.token_harness import (
    SECRET,
    RefusedError,
    create,
    describe,
    expire,
    log_in,
    log_in_with_token,
    renew,
    shake_hands,
    token_client,
    token_settings,
)
from tests.broker.state.security.test_delegation_tokens import signed
from tests.conformance.zookeeper_server import ZooKeeperServer

SETTINGS = {
    **listeners(LOCAL="PLAINTEXT", SASL="SASL_PLAINTEXT"),
    "inter.broker.listener.name": "LOCAL",
    **token_settings("SASL"),
    "super.users": "User:ANONYMOUS;User:alice",
}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("tokens"), SETTINGS) as broker:
        yield broker


def sasl(broker: Broker) -> str:
    return addresses(broker)["SASL"]


def alices(where: str, **more: Any) -> AdminClient:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
             "sasl.jaas.config": plain_login("alice")}  # fmt: skip
    return AdminClient({"bootstrap.servers": where} | login | more)


def is_in(client: RawClient) -> bool:
    return client.ask(MetadataRequest(topics=[]), 12) is not None


def logs_in(where: str, token: Any, mechanism: str = "SCRAM-SHA-256") -> bool:
    with (
        suppress(RefusedError),
        log_in_with_token(where, token.token_id, token.hmac, mechanism) as raw,
    ):
        return is_in(raw)
    return False


# ---- clients ----


def test_kstores_clients_log_in_with_a_token(broker: Broker) -> None:
    with alices(sasl(broker)) as client:
        token = client.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=HOUR_MS)
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice", "User:alice", ("User:bob",),
    )  # fmt: skip
    assert token.max_timestamp_ms - token.issue_timestamp_ms == HOUR_MS
    assert base64.b64encode(token.hmac).decode() not in repr(token)
    by_token = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": token.jaas_config}
    with alices(sasl(broker), **by_token) as client:
        assert client.list_topics() == []


def test_librdkafka_gives_the_tokens_id_as_a_users_name(broker: Broker) -> None:
    """It does not know the SASL extension for tokens."""
    with alices(sasl(broker)) as client:
        token = client.create_delegation_token()
    login = {
        "bootstrap.servers": sasl(broker), "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": token.token_id,
        "sasl.password": token.password,
    }  # fmt: skip
    found = admin.AdminClient(login).list_topics(timeout=PATIENCE_S)
    assert found.cluster_id
    producer = confluent_kafka.Producer(login)
    reports: list[Any] = []
    producer.produce("by-token", b"x", on_delivery=lambda error, _: reports.append(error))
    producer.flush(PATIENCE_S)
    assert reports == [None]


def test_the_admin_client_renews_expires_and_tells(broker: Broker) -> None:
    with alices(sasl(broker)) as client:
        token = client.create_delegation_token()
        end_ms = client.renew_delegation_token(token, period_ms=HOUR_MS)
        found = client.describe_delegation_tokens(["User:alice"])
        [known] = [each for each in found if each.token_id == token.token_id]
        assert known.expiry_timestamp_ms == end_ms
        assert known.hmac == token.hmac
        assert client.expire_delegation_token(token.hmac, period_ms=2 * HOUR_MS) > end_ms
        client.expire_delegation_token(token)
        assert token.token_id not in {t.token_id for t in client.describe_delegation_tokens()}
        with pytest.raises(DelegationTokenNotFoundError):
            client.renew_delegation_token(token)
        with pytest.raises(ValueError, match="User:alice"):
            client.create_delegation_token(owner="alice")


@pytest.mark.slow
def test_without_a_key_there_are_no_tokens(tmp_path: Path) -> None:
    settings = {name: value for name, value in SETTINGS.items() if "secret.key" not in name}
    with Broker(tmp_path, settings) as broker, alices(sasl(broker)) as client:
        for ask in (
            client.create_delegation_token,
            client.describe_delegation_tokens,
            lambda: client.renew_delegation_token(b"x"),
            lambda: client.expire_delegation_token(b"x"),
        ):
            with pytest.raises(DelegationTokenAuthDisabledError):
                ask()
        with pytest.raises(RefusedError, match="invalid credentials"):
            log_in_with_token(sasl(broker), "id", b"x")


# ---- sessions ----


def test_who_came_with_a_token_may_do_nothing_with_tokens(broker: Broker) -> None:
    with log_in(sasl(broker), "alice") as alice:
        token = alice.ask(create(), 3)
    hmac = bytes(token.hmac)
    with log_in_with_token(sasl(broker), token.token_id, hmac) as bearer:
        for request, version in (
            (create(), 3), (renew(hmac), 2), (expire(hmac), 2), (describe(), 3),
        ):  # fmt: skip
            answer = bearer.ask(request, version)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_session_ends_with_its_token_and_is_renewed_with_it(broker: Broker) -> None:
    with log_in(sasl(broker), "alice") as alice, RawClient(sasl(broker)) as bearer:
        token = alice.ask(create(life_ms=HOUR_MS), 3)
        hmac = bytes(token.hmac)
        held = shake_hands(bearer, token_client(token.token_id, hmac))
        assert 0 < held <= HOUR_MS
        alice.ask(expire(hmac, HOUR_MS // 2), 2)
        held = shake_hands(bearer, token_client(token.token_id, hmac))
        assert 0 < held <= HOUR_MS // 2
        assert is_in(bearer)


def test_a_token_that_is_ended_takes_its_sessions_with_it(broker: Broker) -> None:
    with log_in(sasl(broker), "alice") as alice:
        token, other = alice.ask(create(), 3), alice.ask(create(), 3)
        with (
            log_in_with_token(sasl(broker), token.token_id, token.hmac) as bearer,
            log_in_with_token(sasl(broker), other.token_id, other.hmac) as another,
        ):
            assert alice.ask(expire(bytes(token.hmac)), 2).error_code == 0
            assert bearer.frame() is None
            assert is_in(another)
            assert is_in(alice)
        assert not logs_in(sasl(broker), token)


def test_an_expired_token_lets_nobody_in(broker: Broker) -> None:
    with alices(sasl(broker)) as client:
        token = client.create_delegation_token(max_lifetime_ms=1)
        time.sleep(0.01)
        assert not logs_in(sasl(broker), token)
        with pytest.raises(DelegationTokenExpiredError):
            client.renew_delegation_token(token)
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": token.jaas_config}
        with (
            alices(sasl(broker), **login) as bearer,
            pytest.raises(SaslAuthenticationFailedError, match="invalid credentials"),
        ):
            bearer.list_topics()


# ---- what is stored ----


@pytest.mark.slow
def test_tokens_survive_a_restart_and_expired_ones_are_removed(tmp_path: Path) -> None:
    with Broker(tmp_path, SETTINGS) as broker, alices(sasl(broker)) as client:
        kept = client.create_delegation_token(max_lifetime_ms=HOUR_MS)
        client.create_delegation_token(max_lifetime_ms=1)
        assert len(client.describe_delegation_tokens()) == 2
    often = {"delegation.token.expiry.check.interval.ms": "20"}
    with Broker(tmp_path, SETTINGS | often) as broker, alices(sasl(broker)) as client:
        until(lambda: client.describe_delegation_tokens() == [kept])
        assert logs_in(sasl(broker), kept)
    with Broker(tmp_path, SETTINGS | {"delegation.token.secret.key": "another"}) as broker:
        assert not logs_in(sasl(broker), kept)


@pytest.mark.slow
def test_who_writes_to_the_store_without_the_key_makes_no_token(tmp_path: Path) -> None:
    with Broker(tmp_path, SETTINGS) as broker, alices(sasl(broker)) as client:
        token = client.create_delegation_token()
    store = open_own_store(str(tmp_path / "data"))
    path = f"/delegation_token/tokens/{token.token_id}"
    data, _ = store.get(path)
    assert token.hmac.hex().encode() not in data
    assert token.password.encode() not in data
    assert b"alice" not in data
    fields = json.loads(data)
    store.set(path, json.dumps(fields | {"endTimestamp": fields["endTimestamp"] + 1}).encode())
    store.close()
    with Broker(tmp_path, SETTINGS) as broker, alices(sasl(broker)) as client:
        assert client.describe_delegation_tokens() == []
        assert not logs_in(sasl(broker), token)


@pytest.mark.slow
def test_a_broker_with_another_key_says_which_tokens_it_cant_open(tmp_path: Path) -> None:
    with Broker(tmp_path, SETTINGS) as broker, alices(sasl(broker)) as client:
        token = client.create_delegation_token()
    with Broker(tmp_path, SETTINGS | {"delegation.token.secret.key": "another"}) as broker:
        assert not logs_in(sasl(broker), token)
        with alices(sasl(broker)) as client:
            assert client.describe_delegation_tokens() == []
        words = "can't be opened with this broker's delegation.token.secret.key"
        lines = [each for each in broker.output().splitlines() if words in each]
        assert len(lines) == 1
        assert token.token_id in lines[0]
    with Broker(tmp_path, SETTINGS) as broker:  # the key that it was created with
        assert logs_in(sasl(broker), token)


def test_signed_tokens_of_before_are_read_and_sealed() -> None:
    key = SECRET.encode()
    config = token_settings("SASL") | {
        "delegation.token.max.lifetime.ms": HOUR_MS, "delegation.token.expiry.time.ms": HOUR_MS,
        "delegation.token.expiry.check.interval.ms": HOUR_MS,
    }  # fmt: skip

    async def run_blocking(call: Callable[[], Any]) -> Any:
        return call()

    node: Any = SimpleNamespace(config=config, now_ms=lambda: 0, run_blocking=run_blocking)
    store = MemoryStore()
    alice = Principal("User", "alice")
    old = DelegationToken("old", alice, alice, (), 0, HOUR_MS, HOUR_MS)
    foreign = signed(old._replace(token_id="foreign"), b"another key")
    for name, data in (("old", signed(old, key)), ("foreign", foreign)):
        store.create(f"/delegation_token/tokens/{name}", data, parents=True)
    told: list[str] = []
    node.report = told.append
    tokens = DelegationTokens(node, store, lambda: True)
    tokens.load()
    assert tokens.all() == [old]
    assert [each for each in told if "'foreign'" in each and "secret.key" in each] == told
    asyncio.run(tokens.sweep())
    sealed, _ = store.get("/delegation_token/tokens/old")
    assert b"alice" not in sealed
    assert parse("old", sealed, key) == old
    assert store.get("/delegation_token/tokens/foreign")[0] == foreign


# ---- in a cluster ----


def check_that_all_follow(cluster: Cluster) -> None:
    one, other = (where for name, where in ends(cluster[1]) if name == "SASL")
    with log_in(one, "alice") as here, log_in(other, "alice") as there:
        token = here.ask(create(), 3)
        hmac = bytes(token.hmac)
        assert there.ask(renew(hmac, HOUR_MS), 2).error_code == 0  # at once
        until(lambda: logs_in(other, token))
        with (
            log_in_with_token(one, token.token_id, hmac) as first,
            log_in_with_token(other, token.token_id, hmac) as second,
        ):
            assert there.ask(expire(hmac), 2).error_code == 0
            assert first.frame() is None
            assert second.frame() is None
        assert here.ask(renew(hmac), 2).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert not logs_in(one, token)


@pytest.mark.slow
def test_any_broker_changes_tokens_and_all_know_them(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2, SETTINGS) as cluster:
        check_that_all_follow(cluster)


@pytest.mark.slow
@pytest.mark.java
def test_tokens_in_zookeeper(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    where = f"{zookeeper_server.bootstrap}/tokens"
    settings = SETTINGS | {"kstore.coordination.dir": "", "zookeeper.connect": where}
    with Cluster(tmp_path, 2, settings) as cluster:
        check_that_all_follow(cluster)
        with log_in(dict(ends(cluster[1]))["SASL"], "alice") as alice:
            token = alice.ask(create(), 3)
        store = ZooKeeperStore(where)
        assert store.children("/delegation_token/tokens") == [token.token_id]
        store.close()
