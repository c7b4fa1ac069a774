"""ACLs from outside: `kstore acl` and Kafka's kafka-acls manage the same rules, unmodified clients
are held to them, given offsets need REPLICATOR_WRITE, and a cluster's brokers follow each other.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from kstore.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType
from kstore.cli.app import run
from kstore.clients import AdminClient, NewTopic, Producer
from kstore.errors import (
    ClusterAuthorizationFailedError,
    ErrorCode,
    TopicAuthorizationFailedError,
)
from kstore.protocol.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
)
from kstore.protocol.security.acls import DeleteAclsFilter, DeleteAclsRequest
from tests.beside.waiting import until
from tests.broker.harness.wire import Wire
from tests.conformance.kafka_broker import ask_tool
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.probes.peer import Peer
from tests.conformance.sasl_listeners import STANDARD_AUTHORIZER, add_plain_listener

pytestmark = pytest.mark.slow

TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
PATIENCE_S = 30


class Secured:
    """A broker with one listener for the super user, and one for users with passwords."""

    def __init__(self, folder: Path) -> None:
        self.broker = KstoreBroker(folder)
        self.broker.overrides = {
            "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS",
        }  # fmt: skip
        users = dict.fromkeys(("alice", "bob", "copier"), "secret")
        self.sasl = add_plain_listener(self.broker, users)

    @property
    def open(self) -> str:
        """The super user's address."""
        return self.broker.bootstrap

    def settings(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": "secret",
        }

    def grant(self, *acls: Acl) -> None:
        with AdminClient(self.open) as admin:
            admin.create_acls(acls)

    def cli(self, *words: str, check: bool = True) -> str:
        """What `kstore acl` prints."""
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = run(["acl", *words, "-b", self.open])
        assert (code == 0) is check, said.getvalue()
        return said.getvalue()

    def tool(self, *words: str) -> str:
        """What Kafka's own kafka-acls prints."""
        return ask_tool(self.broker, "kafka-acls", *words).stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("acls"))
    secured.broker.start()
    with AdminClient(secured.open) as admin:
        admin.create_topics([NewTopic(name, 1) for name in ("orders", "secret", "copy")])
    yield secured
    secured.broker.stop()


@pytest.fixture(autouse=True)
def no_rules(request: pytest.FixtureRequest) -> Iterator[None]:
    """The rules of a test go with it."""
    yield
    if "secured" in request.fixturenames:
        with AdminClient(request.getfixturevalue("secured").open) as admin:
            admin.delete_acls([AclFilter()])


def written(settings: dict[str, Any], topic: str) -> int:
    """The error code that an unmodified producer gets."""
    codes: list[int] = []
    producer = confluent_kafka.Producer(
        settings | {"message.timeout.ms": 8000, "allow.auto.create.topics": True}
    )
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    producer.flush(PATIENCE_S)
    [code] = codes
    return code


def test_an_unmodified_producer_is_held_to_the_rules(secured: Secured) -> None:
    alice = secured.settings("alice")
    assert written(alice, "orders") == DENIED
    assert written(alice, "absent") == DENIED, "as if it were there"
    for name in ("orders", "made-by-alice"):
        secured.grant(Acl(TOPIC, name, "User:alice", AclOperation.WRITE))
    assert written(alice, "orders") == 0
    assert written(alice, "secret") == DENIED
    assert written(alice, "made-by-alice") == DENIED, "to make it is another right"
    secured.grant(Acl(TOPIC, "made-by-alice", "User:alice", AclOperation.CREATE))
    assert written(alice, "made-by-alice") == 0
    deny = Acl(TOPIC, "*", "User:*", AclOperation.WRITE, AclPermission.DENY, "127.0.0.1")
    secured.grant(deny)
    assert written(alice, "orders") == DENIED


def test_topics_are_listed_to_those_who_may_describe_them(secured: Secured) -> None:
    def seen(user: str) -> set[str]:
        found = ConfluentAdmin(secured.settings(user)).list_topics(timeout=PATIENCE_S)
        return set(found.topics)

    assert seen("bob") == set()
    secured.grant(Acl(TOPIC, "orders", "User:bob", AclOperation.READ))
    assert seen("bob") == {"orders"}
    assert seen("alice") == set()


def test_given_offsets_need_replicator_write(secured: Secured) -> None:
    """KIP-391, beside WRITE on the topic."""

    def copy(offset: int) -> int:
        with Producer(**secured.settings("copier")) as producer:
            future = producer.send("copy", b"x", partition=0, offset=offset)
            producer.flush()
            return int(future.result(PATIENCE_S))

    secured.grant(Acl(TOPIC, "copy", "User:copier", AclOperation.WRITE))
    with pytest.raises(ClusterAuthorizationFailedError):
        copy(7)
    secured.cli("add", "--principal", "User:copier", "--operation", "replicator-write", "--cluster")
    assert copy(7) == 7
    [row] = json.loads(f"[{secured.cli('list', '--cluster', '--json').strip()}]")
    assert (row["principal"], row["operation"]) == ("User:copier", "replicator-write")
    with AdminClient(secured.open) as admin:
        admin.delete_acls([AclFilter(TOPIC)])
    with pytest.raises(TopicAuthorizationFailedError):
        copy(8)


@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kafka_acls_and_kstore_acl_manage_the_same_rules(secured: Secured) -> None:
    secured.tool("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    listed = secured.cli("list", "--topic", "orders", "--json")
    rows = [json.loads(line) for line in listed.splitlines()]
    assert {row["operation"] for row in rows} == {"write", "describe", "create"}
    assert written(secured.settings("alice"), "orders") == 0
    secured.cli(
        "add", "--principal", "User:bob", "--operation", "read", "--group", "g", "--deny",
        "--host", "10.0.0.1", "--pattern", "prefixed",
    )  # fmt: skip
    said = secured.tool("--list")
    group = "`ResourcePattern(resourceType=GROUP, name=g, patternType=PREFIXED)`"
    assert f"Current ACLs for resource {group}" in said
    assert "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=DENY)" in said
    secured.cli("add", "--principal", "User:copier", "--operation", "replicator-write", "--cluster")
    secured.tool("--remove", "--force", "--topic", "orders", "--cluster")
    assert "copier" not in secured.cli("list")
    assert "orders" not in secured.cli("list")
    assert written(secured.settings("alice"), "orders") == DENIED


def test_what_clients_need_is_one_command(secured: Secured) -> None:
    """The rights are those of kafka-acls --producer and --consumer."""

    def rights(*words: str) -> set[tuple[str, str, str]]:
        secured.cli("add", "--principal", "User:bob", *words)
        rows = [json.loads(line) for line in secured.cli("list", "--json").splitlines()]
        secured.cli("remove", "--principal", "User:bob")
        return {(row["resource_type"], row["resource_name"], row["operation"]) for row in rows}

    written = {("topic", "orders", each) for each in ("write", "describe", "create")}
    assert rights("--producer", "--topic", "orders") == written
    in_transactions = {("transactional-id", "tx", each) for each in ("write", "describe")}
    transactional = rights("--producer", "--topic", "orders", "--transactional-id", "tx")
    assert transactional == written | in_transactions
    assert rights("--consumer", "--topic", "orders", "--group", "g") == {
        ("topic", "orders", "read"), ("topic", "orders", "describe"), ("group", "g", "read"),
    }  # fmt: skip
    for wrong in (
        ("--consumer", "--topic", "orders"), ("--producer", "--group", "g"),
        ("--producer", "--topic", "orders", "--operation", "read"), ("--topic", "orders"),
        ("--producer", "--consumer", "--topic", "orders", "--group", "g"),
    ):  # fmt: skip
        assert "--" in secured.cli("add", "--principal", "User:bob", *wrong, check=False)
    assert not secured.cli("list", "--json")


def test_what_is_no_rule_is_refused(secured: Secured) -> None:
    wrong = {
        Acl(CLUSTER, "mine", "User:a", AclOperation.READ): "kafka-cluster",
        Acl(TOPIC, "", "User:a", AclOperation.READ): "'*' means all",
        Acl(TOPIC, "t", "alice", AclOperation.READ): "User:alice",
        Acl(TOPIC, "t", "User:a", AclOperation.ANY): "one operation",
        Acl(AclResourceType.ANY, "t", "User:a", AclOperation.READ): "one type",
        Acl(TOPIC, "t", "User:a", AclOperation.READ, AclPermission.ANY): "allows or denies",
        Acl(TOPIC, "t", "User:a", AclOperation.READ, host=""): "host",
        Acl(TOPIC, "t", "User:a", AclOperation.READ, host="localhost"): "would never apply",
        Acl(TOPIC, "t", "User:a", AclOperation.READ, host="10.0.0.1/8"): "is 10.0.0.0/8",
        Acl(TOPIC, "t" * 600, "User:a", AclOperation.READ): "can't be stored",
    }
    good = Acl(TOPIC, "t", "User:a", AclOperation.READ, host="10.0.0.0/8")
    with AdminClient(secured.open) as admin:
        results = admin.create_acls([*wrong, good], raise_errors=False)
        assert admin.describe_acls() == [good]
    for rule, words in wrong.items():
        error = results.errors[rule]
        assert error.code == ErrorCode.INVALID_REQUEST
        assert words in str(error)


def test_numbers_without_a_meaning_are_refused_and_the_other_rows_done(secured: Secured) -> None:
    rule = Acl(TOPIC, "t", "User:a", AclOperation.READ)
    with AdminClient(secured.open) as admin:
        admin.create_acls([rule])
    host, _, port = secured.open.rpartition(":")
    peer = Peer("kstore", host, int(port))
    filters = [
        DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=None,
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=3,
            permission_type=number,
        )
        for number in (8, AclPermission.ALLOW)
    ]
    answer: Any = peer.ask(DeleteAclsRequest(filters=filters), 3)
    codes = [row.error_code for row in answer.filter_results]
    assert codes == [ErrorCode.INVALID_REQUEST, 0]
    assert len(answer.filter_results[1].matching_acls) == 1
    filters[0].permission_type = 0
    with pytest.raises(ConnectionError):
        peer.ask(DeleteAclsRequest(filters=filters), 3)
    peer.reset()


def test_rules_are_managed_by_those_who_may(secured: Secured) -> None:
    rule = Acl(TOPIC, "t", "User:a", AclOperation.READ)
    with AdminClient(**secured.settings("alice")) as admin:
        for call in (
            admin.describe_acls,
            lambda: admin.create_acls([rule]),
            lambda: admin.delete_acls([AclFilter()]),
        ):
            with pytest.raises(ClusterAuthorizationFailedError):
                call()
        secured.grant(Acl(CLUSTER, "kafka-cluster", "User:alice", AclOperation.ALTER))
        admin.create_acls([rule])
        assert rule in admin.describe_acls(), "ALTER is DESCRIBE, too"
        admin.delete_acls([AclFilter(TOPIC)])
        assert rule not in admin.describe_acls()


# ---- a cluster ----


def metadata_error(
    cluster: KstoreCluster, node_id: int, topic: str, host: str = "127.0.0.2"
) -> int:
    """The error code that a broker's Metadata gives a client from that address for a topic."""
    with Wire(cluster.brokers[node_id], host=host) as line:
        answer = line.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
        return int(answer.topics[0].error_code)


def test_every_broker_of_a_cluster_follows(tmp_path: Path) -> None:
    """A rule that one broker gets holds at all of them, and at one that starts later."""
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true",
    }  # fmt: skip
    rule = Acl(TOPIC, "t", "User:*", AclOperation.ALL, AclPermission.DENY, "127.0.0.2")
    allow = Acl(TOPIC, "t", "User:*", AclOperation.ALL)
    with KstoreCluster(tmp_path, 3, overrides=settings) as cluster:
        cluster.create_topic("t", 1, 3)
        until(lambda: not metadata_error(cluster, 2, "t"), "broker 2 knows the topic")
        cluster.stop(3)
        with cluster.admin(1) as admin:
            admin.create_acls([rule, allow])
        assert metadata_error(cluster, 1, "t") == DENIED, "who was asked has done it"
        until(lambda: metadata_error(cluster, 2, "t") == DENIED, "broker 2 follows")
        assert metadata_error(cluster, 2, "t", "127.0.0.1") == 0
        cluster.start(3)
        assert metadata_error(cluster, 3, "t") == DENIED
        with cluster.admin(3) as admin:
            admin.delete_acls([AclFilter(permission=AclPermission.DENY)])
        for node_id in cluster.brokers:
            until(lambda node_id=node_id: metadata_error(cluster, node_id, "t") == 0, "all follow")
