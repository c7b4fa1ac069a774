"""Quotas of authenticated users and of addresses, and limits of connections: the same test on
kstore and on a real Kafka. What Kafka does is what is expected.
"""

from __future__ import annotations

import itertools
import socket
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from kstore._fast.record.builder import build_batch
from kstore.clients import AdminClient, NewTopic, TopicPartition
from kstore.clients.admin import quota_entity
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.schema import Message
from tests.beside.waiting import until
from tests.broker.harness.wire import Wire
from tests.conformance import wire
from tests.conformance.conftest import KINDS, of_kind
from tests.conformance.sasl_listeners import add_plain_listener
from tests.plain_messages import Ask
from tests.record_requests import fetch_request, produce_request

TOPIC = "t"
THROTTLING_QUOTA_EXCEEDED = 89
_names = (f"made-{number}" for number in itertools.count())


class Quotas(NamedTuple):
    """A running broker with users alice and bob, and an administrator of it."""

    sasl: tuple[str, int]
    admin: AdminClient

    def set(self, key: str, value: float | None, **entity: str | None) -> None:
        self.admin.alter_client_quotas({quota_entity(**entity): {key: value}})


class Client(Wire):
    """One connection of a user, with a client id."""

    def __init__(self, address: tuple[str, int], user: str, client_id: str) -> None:
        super().__init__(":".join(map(str, address)), client_id)
        assert self.call(Ask.SaslHandshake(mechanism="PLAIN"), 1).error_code == 0
        secret = f"\0{user}\0{user}-secret".encode()
        assert self.call(Ask.SaslAuthenticate(auth_bytes=secret), 2).error_code == 0


@pytest.fixture(scope="module", params=KINDS)
def quotas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Quotas]:
    broker = of_kind(request, tmp_path_factory.mktemp("quotas"))
    broker.overrides = {"quota.window.num": "2", "max.connections.per.ip.overrides": "127.0.0.3:2"}
    address = add_plain_listener(broker, {"alice": "alice-secret", "bob": "bob-secret"})
    host, _, port = address.partition(":")
    sasl = host, int(port)
    with broker, AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        yield Quotas(sasl, admin)


def produce(size: int = 5000) -> Message:
    return produce_request(TOPIC, build_batch([(None, b"x" * size)]))


def fetch() -> Message:
    return fetch_request(TOPIC, 0)


def throttle_ms(address: tuple[str, int], user: str, client_id: str, request: Message) -> int:
    """The throttle time of a new connection, so that no test waits for the end of a throttle."""
    client = Client(address, user, client_id)
    try:
        answer = client.call(request, 9 if isinstance(request, ProduceRequest) else 12)
        return int(answer.throttle_time_ms)
    finally:
        client.sock.close()


CASES: dict[str, tuple[Mapping[str, str | None], tuple[bool, bool, bool]]] = {
    # whose quota: (does alice's other client wait, bob's client of the same id, bob's other one)
    "user": ({"user": "alice"}, (True, False, False)),
    "every-user": ({"user": None}, (True, False, False)),
    "client": ({"client_id": "one"}, (False, True, False)),
    "both": ({"user": "alice", "client_id": "one"}, (False, False, False)),
    "user-every-client": ({"user": "alice", "client_id": None}, (False, False, False)),
}


@pytest.mark.parametrize("case", CASES)
def test_whose_bytes_count_for_a_quota(quotas: Quotas, case: str) -> None:
    """A quota of 1,000 bytes a second is used up by alice's "one"; the others send little."""
    entity, expected = CASES[case]
    key = "producer_byte_rate"
    quotas.set(key, 1000.0, **entity)
    try:
        until(lambda: throttle_ms(quotas.sasl, "alice", "one", produce()) > 0)
        others = [("alice", "two"), ("bob", "one"), ("bob", "two")]
        waits = [throttle_ms(quotas.sasl, *who, produce(1)) > 0 for who in others]
        assert tuple(waits) == expected
    finally:
        quotas.set(key, None, **entity)


def test_the_most_specific_quota_counts(quotas: Quotas) -> None:
    key = "consumer_byte_rate"
    quotas.set(key, 1.0, user="alice")
    quotas.set(key, 1e9, user="alice", client_id="trusted")
    Client(quotas.sasl, "bob", "w").call(produce(), 9)
    until(lambda: throttle_ms(quotas.sasl, "alice", "any", fetch()) > 0)
    assert throttle_ms(quotas.sasl, "alice", "trusted", fetch()) == 0
    assert throttle_ms(quotas.sasl, "bob", "any", fetch()) == 0
    quotas.set(key, None, user="alice")
    quotas.set(key, None, user="alice", client_id="trusted")
    until(lambda: throttle_ms(quotas.sasl, "alice", "any", fetch()) == 0)


def test_what_share_groups_fetch_counts_for_a_quota(quotas: Quotas) -> None:
    (described,) = quotas.admin.describe_topics([TOPIC])
    topic_id = described.topic_id
    group = f"shared-{next(_names)}"
    quotas.admin.alter_share_group_offsets(group, {TopicPartition(TOPIC, 0): 0})
    writer = Client(quotas.sasl, "bob", "w")

    def waits(user: str) -> tuple[int, bool]:
        """The throttle time of a new member, and whether it got records."""
        topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
        request = Ask.ShareFetch(
            group_id=group, member_id=uuid.uuid4().hex, share_session_epoch=0, max_wait_ms=500,
            min_bytes=1, max_bytes=1 << 20, max_records=10, batch_size=10, topics=topics,
        )  # fmt: skip
        writer.call(produce(), 9)  # requests over the limit are no longer delivered
        client = Client(quotas.sasl, user, "any")
        try:
            answer = client.call(request, 1)
            assert answer.error_code == 0
            rows = [row for topic in answer.responses for row in topic.partitions]
            return answer.throttle_time_ms, any(row.acquired_records for row in rows)
        finally:
            client.sock.close()

    until(lambda: waits("bob") == (0, True))
    quotas.set("consumer_byte_rate", 1.0, user="alice")
    until(lambda: waits("alice")[0] > 0)
    until(lambda: waits("bob") == (0, True))
    quotas.set("consumer_byte_rate", None, user="alice")
    quotas.set("request_percentage", 1e-6, user="alice")
    until(lambda: waits("alice")[0] > 0)
    quotas.set("request_percentage", None, user="alice")
    until(lambda: waits("alice") == (0, True))


def create(count: int) -> Message:
    topics = [
        {"name": next(_names), "num_partitions": count, "replication_factor": 1} for _ in range(2)
    ]
    return Ask.CreateTopics(topics=topics, timeout_ms=30_000)


def test_partitions_that_a_user_makes_count_for_the_user(quotas: Quotas) -> None:
    key = "controller_mutation_rate"
    quotas.set(key, 1.0, user="alice")
    alice, bob = (Client(quotas.sasl, user, "c") for user in ("alice", "bob"))
    codes: list[int] = []

    def refused() -> bool:
        codes[:] = [row.error_code for row in alice.call(create(20), 6).topics]
        return THROTTLING_QUOTA_EXCEEDED in codes

    until(refused)
    assert {row.error_code for row in bob.call(create(1), 6).topics} == {0}
    quotas.set(key, None, user="alice")


def connect(address: tuple[str, int], source: str) -> socket.socket:
    return socket.create_connection(address, timeout=30, source_address=(source, 0))


def is_served(connection: socket.socket) -> bool:
    try:
        wire.exchange(connection, wire.API_VERSIONS_FRAME)
    except OSError:
        return False
    return True


def test_an_address_has_so_many_connections(quotas: Quotas) -> None:
    """max.connections.per.ip.overrides allows two; the third is closed before it is answered."""
    held = [connect(quotas.sasl, "127.0.0.3") for _ in range(2)]
    assert all(is_served(each) for each in held)
    assert not is_served(connect(quotas.sasl, "127.0.0.3"))
    others = [connect(quotas.sasl, "127.0.0.4") for _ in range(4)]
    assert all(is_served(each) for each in others)
    held[0].close()
    until(lambda: is_served(connect(quotas.sasl, "127.0.0.3")))
    for each in (*held, *others):
        each.close()


def test_an_address_that_connects_too_often_is_held_up(quotas: Quotas) -> None:
    """KIP-612: beyond the address's rate a connection is closed, after a pause."""
    quotas.set("connection_creation_rate", 2.0, ip="127.0.0.5")
    until(lambda: not is_served(connect(quotas.sasl, "127.0.0.5")))
    assert is_served(connect(quotas.sasl, "127.0.0.6"))
    quotas.set("connection_creation_rate", None, ip="127.0.0.5")
