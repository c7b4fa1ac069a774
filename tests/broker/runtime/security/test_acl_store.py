"""ACLs in the coordination store: Kafka's layout, concurrent changes, changes of other brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.acls import Acl, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import BadPathError, Store, StoreError
from kstore.broker.runtime.security.acl_store import AclStore, open_authorizer

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE = AclOperation.READ, AclOperation.WRITE
PREFIXED = AclPatternType.PREFIXED
ORDERS = Acl(TOPIC, "orders", "User:alice", READ)
NO_WRITE = Acl(TOPIC, "orders", "User:bob", WRITE, AclPermission.DENY, "10.0.0.1")
PREFIX = Acl(GROUP, "team-", "User:*", AclOperation.ALL, pattern_type=PREFIXED)
GIVE = Acl(CLUSTER, "kafka-cluster", "User:copy", AclOperation.REPLICATOR_WRITE)
TOKENS = Acl(AclResourceType.USER, "alice", "User:bob", AclOperation.CREATE_TOKENS)


class Side:
    """One broker's view of the store."""

    def __init__(self, store: Store, *, shared: bool = False, **settings: Any) -> None:
        self.reports: list[str] = []
        self.forgotten = 0
        config: Any = {"super.users": "", "allow.everyone.if.no.acl.found": False} | settings
        node: Any = SimpleNamespace(run_blocking=self._run, report=self.reports.append)
        turns: Any = None
        self.authorizer = open_authorizer(config, store)
        self.acls = AclStore(node, store, turns, self.authorizer, self._forget, shared=shared)

    def _forget(self) -> None:
        self.forgotten += 1

    async def _run(self, call: Callable[[], Any]) -> Any:
        return call()

    @property
    def known(self) -> set[Acl]:
        return set(self.authorizer.acls())


@pytest.fixture
def store():
    store = MemoryStore()
    yield store
    store.close()


def node(store: Store, path: str) -> Any:
    return json.loads(store.get(path)[0])


def test_the_layout_is_kafkas(store: MemoryStore) -> None:
    side = Side(store)
    assert asyncio.run(side.acls.create([ORDERS, NO_WRITE, PREFIX, GIVE, TOKENS])) == {}
    assert node(store, "/kafka-acl/Topic/orders") == {
        "version": 1,
        "acls": [
            {"principal": "User:alice", "permissionType": "Allow", "operation": "Read",
             "host": "*"},
            {"principal": "User:bob", "permissionType": "Deny", "operation": "Write",
             "host": "10.0.0.1"},
        ],
    }  # fmt: skip
    [team] = node(store, "/kafka-acl-extended/prefixed/Group/team-")["acls"]
    assert team["operation"] == "All"
    [give] = node(store, "/kafka-acl/Cluster/kafka-cluster")["acls"]
    assert give["operation"] == "ReplicatorWrite"
    [tokens] = node(store, "/kafka-acl/User/alice")["acls"]
    assert tokens["operation"] == "CreateTokens"
    assert Side(store).known == side.known == {ORDERS, NO_WRITE, PREFIX, GIVE, TOKENS}


def test_what_kafka_wrote_is_read(store: MemoryStore) -> None:
    rows = [
        {"principal": "User:a", "permissionType": "Allow", "operation": "DescribeConfigs",
         "host": "*"},
        {"principal": "User:b", "permissionType": "Deny", "operation": "IdempotentWrite",
         "host": "10.0.0.1"},
        {"principal": "User:c", "permissionType": "Allow", "operation": "CreateTokens",
         "host": "*"},
    ]  # fmt: skip
    text = json.dumps({"version": 1, "acls": rows}).encode()
    store.create("/kafka-acl/Cluster/kafka-cluster", text, parents=True)
    store.create("/kafka-acl-extended/prefixed/TransactionalId/tx", b"", parents=True)
    assert {each.operation for each in Side(store).known} == {
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.REPLICATOR_WRITE,
    }


@pytest.mark.parametrize(
    "name", ["*", "a/b", ".", "..", "100%", "%2F", "a b", "<default>", "ünï", "a\nb", "~", "a+b"]
)
@pytest.mark.parametrize("pattern_type", [AclPatternType.LITERAL, PREFIXED])
def test_every_name_can_be_kept(
    store: MemoryStore, name: str, pattern_type: AclPatternType
) -> None:
    rule = Acl(GROUP, name, "User:a", READ, pattern_type=pattern_type)
    side = Side(store)
    assert asyncio.run(side.acls.create([rule])) == {}
    assert Side(store).known == {rule}
    assert asyncio.run(side.acls.delete([AclFilter(GROUP, name)])) == [[rule]]
    assert Side(store).known == side.known == set()


def test_a_name_that_is_too_long_is_told_and_the_others_are_added(store: MemoryStore) -> None:
    long = Acl(GROUP, "g" * 600, "User:a", READ)
    side = Side(store)
    problems = asyncio.run(side.acls.create([long, ORDERS]))
    assert list(problems) == [long]
    assert isinstance(problems[long], BadPathError)
    assert side.known == Side(store).known == {ORDERS}


def test_the_last_rule_takes_its_node_along(store: MemoryStore) -> None:
    side = Side(store)
    asyncio.run(side.acls.create([ORDERS, NO_WRITE]))
    assert asyncio.run(side.acls.delete([AclFilter(principal="User:alice")])) == [[ORDERS]]
    assert store.exists("/kafka-acl/Topic/orders")
    assert asyncio.run(side.acls.delete([AclFilter(), AclFilter(GROUP)])) == [[NO_WRITE], []]
    assert not store.exists("/kafka-acl/Topic/orders")
    assert asyncio.run(side.acls.delete([AclFilter()])) == [[]]


def test_answers_are_forgotten_only_when_a_rule_changes(store: MemoryStore) -> None:
    side = Side(store)
    asyncio.run(side.acls.create([ORDERS]))
    assert side.forgotten == 1
    asyncio.run(side.acls.create([ORDERS]))
    asyncio.run(side.acls.reload({"/kafka-acl"}))
    assert side.forgotten == 1
    asyncio.run(side.acls.delete([AclFilter()]))
    assert side.forgotten == 2


def test_two_brokers_at_once_lose_no_rule(store: MemoryStore, monkeypatch) -> None:
    """One writes between the read and the write of the other, whichever write that is."""
    other = Side(store.new_session())
    between: list[Coroutine[Any, Any, Any]] = []
    multi = store.multi

    def late(ops: Any) -> Any:
        while between:
            with pytest.raises(StopIteration):
                between.pop().send(None)
        return multi(ops)

    monkeypatch.setattr(store, "multi", late)
    side = Side(store)
    between.append(other.acls.create([ORDERS]))
    asyncio.run(side.acls.create([NO_WRITE]))
    assert Side(store).known == side.known == {ORDERS, NO_WRITE}
    between.append(other.acls.delete([AclFilter(principal="User:alice")]))
    asyncio.run(side.acls.delete([AclFilter(principal="User:bob")]))
    assert Side(store).known == side.known == set()
    asyncio.run(side.acls.create([ORDERS]))
    asyncio.run(other.acls.reload({"/"}))
    between.append(other.acls.delete([AclFilter()]))
    asyncio.run(side.acls.create([NO_WRITE]))
    assert Side(store).known == side.known == {NO_WRITE}


def test_what_another_broker_changes_is_read_again_where_it_changed(store: MemoryStore) -> None:
    side, other = Side(store), Side(store.new_session())
    asyncio.run(other.acls.create([ORDERS, PREFIX]))
    asyncio.run(side.acls.reload({"/kafka-acl/Topic/orders", "/kafka-acl/Topic"}))
    assert side.known == {ORDERS, PREFIX}, "a folder means everything"
    asyncio.run(other.acls.delete([AclFilter()]))
    asyncio.run(side.acls.reload({"/kafka-acl/Topic/orders"}))
    assert side.known == {PREFIX}
    asyncio.run(side.acls.reload({"/kafka-acl-extended/prefixed/Group/team-"}))
    assert side.known == set()


def test_a_deletion_means_what_another_broker_has_just_added_too(store: MemoryStore) -> None:
    side, other = Side(store, shared=True), Side(store.new_session())
    asyncio.run(other.acls.create([ORDERS]))
    assert asyncio.run(side.acls.delete([AclFilter()])) == [[ORDERS]]


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"[]", b'{"acls": [{}]}', b'{"acls": 7}',
        b'{"acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "Fly",'
        b' "host": "*"}]}',
        b'{"acls": [{"principal": "User:a", "permissionType": "Perhaps", "operation": "Read",'
        b' "host": "*"}]}',
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_read_is_not_skipped(store: MemoryStore, data: bytes) -> None:
    """It may deny something: a broker does not start, and a running one keeps the ACLs that
    it had.
    """
    side = Side(store)
    asyncio.run(side.acls.create([ORDERS]))
    store.set("/kafka-acl/Topic/orders", data)
    with pytest.raises(StoreError, match="/kafka-acl/Topic/orders can't be read"):
        Side(store)
    asyncio.run(side.acls.reload({"/kafka-acl/Topic/orders"}))
    [report] = side.reports
    assert "correct the node" in report
    assert side.known == {ORDERS}
    problems = asyncio.run(side.acls.create([NO_WRITE]))
    assert list(problems) == [NO_WRITE]


def test_settings_of_the_authorizer(store: MemoryStore) -> None:
    settings = {"super.users": "User:a; User:CN=b,O=c;", "allow.everyone.if.no.acl.found": True}
    authorizer = Side(store, **settings).authorizer
    assert authorizer.super_users == {"User:a", "User:CN=b,O=c"}
    assert authorizer.allow_if_no_acl_found
