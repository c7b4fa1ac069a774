"""Every API requires the rights in the table. A user without a right gets its error, changes
nothing and learns nothing. A user with exactly the rights of the row is not refused.

tests/conformance/security/test_rights.py compares refusals with Kafka's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

import pytest

from kstore.acls import AclResourceType
from kstore.broker.api import API_TABLE
from kstore.broker.api.security.permissions import ANYBODY, DENIED, PERMISSIONS, Level, Right
from kstore.protocol.registry import APIS
from tests.broker.runtime.security.token_harness import allow
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.probes.compare import plain
from tests.conformance.probes.consumer_groups import beat, join
from tests.conformance.probes.rights import UNKNOWN_ID, request
from tests.conformance.probes.secured import SecuredPeer, secure
from tests.conformance.probes.seeds import Unit, prepare
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask, error_codes

Units = Callable[[int, int], tuple[Unit, Unit]]
USER = "nobody"
ALLOW, DENY = 3, 2
EVERY_RULE = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
TOKENS = {38, 41}
"""test_delegation_tokens.py tests the rights to create and see delegation tokens."""
KEYS = sorted(PERMISSIONS.keys() - TOKENS)
BY_ID = {0: 13, 1: 13, 8: 10, 9: 10}
"""Versions that name topics by ids: that an id is unknown is said, for nobody can guess one."""
# Whose answers show fewer things without the right, or none, instead of an error.
SHOW_LESS = {16, 60, 66}


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPeer]:
    """A broker that checks rights; alone in a cluster, so that it serves what brokers ask, too."""
    folder = tmp_path_factory.mktemp("permissions")
    broker = KstoreBroker(folder)
    port = secure(broker)
    broker.overrides |= {
        "node.id": "1",
        # The users' listener, so that requests of brokers are served there.
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "kstore.coordination.dir": str(folder / "coordination"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    own = 'required username="broker" password="b" user_broker="b" '
    broker.overrides["super.users"] += ";User:broker"
    broker.overrides[jaas] = broker.overrides[jaas].replace("required ", own)
    with broker:
        found = SecuredPeer("kstore", broker.host, broker.port, port)
        found.warm_up()
        for key, row in API_TABLE.items():  # what brokers ask is not advertised
            found.versions.setdefault(key, (row.min_version, row.max_version))
        yield found
        found.reset()


def give(peer: SecuredPeer, rights: Iterable[tuple[int, int]]) -> None:
    """Have the user these operations on all resources of these types, and no other right."""
    own = EVERY_RULE | {"principal_filter": f"User:{USER}"}
    peer.ask(Ask.DeleteAcls(filters=[own]), 3)
    for operation, kind in rights:
        name = "kafka-cluster" if kind == AclResourceType.CLUSTER else "*"
        peer.ask(allow(USER, kind, name, operation), 3)


def add_rule(peer: SecuredPeer, prefix: str, operation: int, permission: int) -> None:
    """A rule for the topics whose names begin so."""
    rule = {
        "resource_type": AclResourceType.TOPIC, "resource_name": prefix, "operation": operation,
        "resource_pattern_type": 4, "principal": f"User:{USER}", "host": "*",
        "permission_type": permission,
    }  # fmt: skip
    peer.ask(Ask.CreateAcls(creations=[rule]), 3)


def errors_in(answer: Any) -> set[int]:
    return {*error_codes(answer)} - {0}


@pytest.fixture(scope="module")
def units(peer: SecuredPeer) -> Callable[[int, int], tuple[Unit, Unit]]:
    """What an API's request is about where all is there, made once, and where nothing is."""
    made: dict[int, Unit] = {}

    def of(key: int, version: int) -> tuple[Unit, Unit]:
        if key not in made:
            made[key] = Unit(peer, key, versions(key)[-1])
            prepare(made[key])
        there, absent = copy(made[key]), copy(made[key])
        there.version = absent.version = version
        absent.name = f"{there.name}-absent"
        absent.topic_id, absent.group = UNKNOWN_ID, f"{absent.name}-g"
        return there, absent

    return of


def asked(peer: SecuredPeer, unit: Unit) -> Any:
    unit.number += 1
    return peer.ask(request(unit), unit.version, USER)


def state(peer: SecuredPeer) -> list[Any]:
    """All that requests could change, as the super user sees it."""
    topics: Any = peer.ask(Ask.Metadata(topics=None), 12)
    names = [{"resource_type": 2, "resource_name": topic.name} for topic in topics.topics]
    names += [{"resource_type": 4, "resource_name": ""}]
    questions = [
        (Ask.DescribeConfigs(resources=names), 4),
        (Ask.ListGroups(), 5),
        (Ask.DescribeAcls(**EVERY_RULE), 3),
    ]
    return [plain(topics), *(plain(peer.ask(each, version)) for each, version in questions)]


def versions(key: int) -> range:
    row, api = API_TABLE[key], APIS[key]
    return range(max(row.min_version, api.min_version), min(row.max_version, api.max_version) + 1)


def without_names(answer: Any, unit: Unit) -> str:
    text = repr(answer).replace(unit.name, "NAME")
    return text.replace(f"{unit.topic_id!r}", "ID")


def test_every_api_is_in_the_table_or_open_to_anybody() -> None:
    assert set(PERMISSIONS) | set(ANYBODY) == set(API_TABLE)
    assert not set(PERMISSIONS) & set(ANYBODY)


def test_rows_are_looked_at_once_and_after_the_whole() -> None:
    for rights in PERMISSIONS.values():
        levels = [right.level for right in rights if right.level is not Level.HANDLER]
        assert Level.EACH not in levels[:-1]


def test_who_has_no_right_is_refused_by_every_api_at_every_version_and_changes_nothing(
    peer: SecuredPeer, units: Units
) -> None:
    give(peer, [])
    pairs = [units(key, version) for key in KEYS for version in versions(key)]
    before = state(peer)
    for there, absent in pairs:
        key, version = there.api_key, there.version
        for unit in (there, absent):
            answer = asked(peer, unit)
            found = errors_in(answer)
            known = set(DENIED.values())
            if unit is absent and version >= BY_ID.get(key, 99):
                known.add(100)
            where = f"{APIS[key].name} v{version} about {unit.name}: {answer}"
            assert found <= known, where
            assert bool(found) == (key not in SHOW_LESS), where
    assert state(peer) == before


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("key", [key for key in KEYS if key not in BY_ID])
def test_who_has_no_right_does_not_learn_what_is_there(
    peer: SecuredPeer, units: Units, key: int
) -> None:
    give(peer, [])
    for version in {versions(key)[0], versions(key)[-1]}:
        there, absent = units(key, version)
        first, second = (without_names(plain(asked(peer, unit)), unit) for unit in (there, absent))
        assert first == second, f"{APIS[key].name} v{version}"


def _allowed(key: int, version: int, *, but: Right | None = None) -> list[tuple[int, int]]:
    return [
        (right.operation, right.resource)
        for right in PERMISSIONS[key]
        if right is not but and right.first <= version <= right.last
    ]


REFUSING = [
    (key, right)
    for key in KEYS
    for right in PERMISSIONS[key]
    if right.level is not Level.HANDLER and right.last >= versions(key)[-1]
]


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize(("key", "right"), REFUSING, ids=lambda value: str(value)[:40])
def test_the_rights_of_the_row_are_enough_and_none_of_them_can_be_missing(
    peer: SecuredPeer, units: Units, key: int, right: Right
) -> None:
    version = versions(key)[-1]
    null_id = key == 22  # InitProducerId: the seed is not transactional
    by_id = right.resource == AclResourceType.TOPIC and version >= BY_ID.get(key, 99)
    for unit in units(key, version)[: 1 if by_id else 2]:
        give(peer, _allowed(key, version))
        assert not errors_in(asked(peer, unit)) & set(DENIED.values())
        give(peer, _allowed(key, version, but=right))
        if not null_id:
            assert DENIED[right.resource] in errors_in(asked(peer, unit))
        for other in right.instead:
            rest = _allowed(key, version, but=right)
            give(peer, [*rest, (other.operation, other.resource)])
            assert not errors_in(asked(peer, unit)) & set(DENIED.values())


def test_a_denial_beats_what_is_allowed(peer: SecuredPeer, units: Units) -> None:
    there, _ = units(37, 3)
    give(peer, [(7, AclResourceType.TOPIC)])
    add_rule(peer, there.topic[:5], 7, DENY)
    assert errors_in(asked(peer, there)) == {DENIED[AclResourceType.TOPIC]}


@pytest.mark.slow
def test_a_pattern_finds_only_topics_that_its_member_may_describe(peer: SecuredPeer) -> None:
    give(peer, [(3, AclResourceType.GROUP)])
    for topic in ("seen-a", "seen-b", "unseen-c"):
        peer.ask(create(topic), peer.version_for(19))
    add_rule(peer, "seen-", 8, ALLOW)
    joined: Any = peer.ask(
        join("by-pattern", "member", subscribed_topic_regex=".*seen-.*"), 1, USER
    )
    epoch, topics = joined.member_epoch, joined.assignment.topic_partitions
    end = time.monotonic() + 20
    while not topics and time.monotonic() < end:
        found: Any = peer.ask(beat("by-pattern", "member", epoch, topic_partitions=[]), 1, USER)
        epoch = found.member_epoch
        topics = found.assignment.topic_partitions if found.assignment is not None else topics
    wanted = {peer.topic_id("seen-a"), peer.topic_id("seen-b")}
    assert {row.topic_id for row in topics} == wanted
