"""The authorizer's rules, one by one, and against a slow reference that looks at every rule."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from kstore.broker.state.security import authorizer as rules
from kstore.broker.state.security.authorizer import NO_RULES, Authorizer, Rules
from kstore.broker.state.security.hosts import host_refusal, one_host
from tests.reference.acl_rules import load

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"
SINGLE = [operation for operation in AclOperation if operation > AclOperation.ALL]


def acl(
    name: str, operation: AclOperation, permission: AclPermission = ALLOW, *, who: str = ALICE,
    host: str = "*", prefixed: bool = False, kind: AclResourceType = TOPIC,
) -> Acl:  # fmt: skip
    pattern = PREFIXED if prefixed else LITERAL
    return Acl(kind, name, who, operation, permission, host, pattern)


def with_rules(*acls: Acl, allow_if_no_acl_found: bool = False) -> Authorizer:
    made = Authorizer(["User:root"], allow_if_no_acl_found=allow_if_no_acl_found)
    load(made, acls)
    return made


def may(
    authorizer: Authorizer, operation: AclOperation, name: str = "orders", who: str = ALICE,
    host: str = HOST,
) -> bool:  # fmt: skip
    return authorizer.authorize(who, host, operation, TOPIC, name)


def test_without_a_rule_nobody_may_do_anything_but_super_users() -> None:
    nothing = with_rules()
    assert not may(nothing, READ)
    assert may(nothing, READ, who="User:root")
    assert not may(nothing, READ, who="User:Root"), "principals are compared letter by letter"


def test_a_super_user_may_what_a_rule_denies() -> None:
    assert may(with_rules(acl("orders", READ, DENY, who="User:root")), READ, who="User:root")


def test_a_literal_rule_is_for_one_name_and_one_principal() -> None:
    some = with_rules(acl("orders", READ))
    assert may(some, READ)
    assert not may(some, READ, "orders2")
    assert not may(some, READ, who=BOB)
    assert not may(some, WRITE)
    assert not some.authorize(ALICE, HOST, READ, GROUP, "orders")


@pytest.mark.parametrize(
    ("rule", "name", "applies"),
    [
        (acl("*", READ), "orders", True),
        (acl("ord", READ, prefixed=True), "orders", True),
        (acl("orders", READ, prefixed=True), "orders", True),
        (acl("orders2", READ, prefixed=True), "orders", False),
        (acl("*", READ, prefixed=True), "orders", False),
        (acl("*", READ, prefixed=True), "*", True),
        (acl("Ord", READ, prefixed=True), "orders", False),
    ],
    ids=str,
)
def test_patterns_of_names(rule: Acl, name: str, applies: bool) -> None:
    assert may(with_rules(rule), READ, name) is applies


def test_a_rule_for_everybody_is_for_every_type_of_principal() -> None:
    everybody = with_rules(acl("orders", READ, who="User:*"))
    assert may(everybody, READ, who=BOB)
    assert may(everybody, READ, who="Robot:7")


def test_deny_comes_before_allow_wherever_it_stands() -> None:
    denials = (
        acl("orders", READ, DENY), acl("*", READ, DENY), acl("o", READ, DENY, prefixed=True),
        acl("orders", AclOperation.ALL, DENY, who="User:*"),
    )  # fmt: skip
    for denial in denials:
        both = with_rules(acl("orders", AclOperation.ALL), denial)
        assert not may(both, READ), denial
        assert may(both, WRITE) is (denial.operation == READ), denial


@pytest.mark.parametrize("operation", SINGLE, ids=lambda each: each.name)
def test_what_an_allowed_operation_implies(operation: AclOperation) -> None:
    implied = {operation}
    if operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        implied.add(DESCRIBE)
    if operation == AclOperation.ALTER_CONFIGS:
        implied.add(AclOperation.DESCRIBE_CONFIGS)
    some = with_rules(acl("orders", operation))
    assert {each for each in SINGLE if may(some, each)} == implied


@pytest.mark.parametrize("operation", SINGLE, ids=lambda each: each.name)
def test_a_denied_operation_denies_no_other(operation: AclOperation) -> None:
    some = with_rules(acl("orders", AclOperation.ALL), acl("orders", operation, DENY))
    assert {each for each in SINGLE if not may(some, each)} == {operation}


def test_a_rule_for_a_host_is_for_that_alone() -> None:
    some = with_rules(
        acl("orders", READ, host=HOST), acl("orders", WRITE), acl("orders", WRITE, DENY, host=HOST)
    )
    assert may(some, READ)
    assert not may(some, WRITE)
    assert not may(some, READ, host="10.0.0.2")
    assert may(some, WRITE, host="10.0.0.2")


@pytest.mark.parametrize(
    ("rule", "client"),
    [
        ("0:0:0:0:0:0:0:1", "::1"), ("::1", "::1"), ("FE80::1", "fe80:0:0:0:0:0:0:1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
    ],
)  # fmt: skip
def test_addresses_that_are_the_same_are_one(rule: str, client: str) -> None:
    assert one_host(rule) == one_host(client)
    assert may(with_rules(acl("orders", READ, host=rule)), READ, host=client)


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        ("127.0.0.0/8", "127.1.2.3", "128.0.0.1"),
        ("10.0.0.7/32", "10.0.0.7", "10.0.0.8"),
        ("0.0.0.0/0", "9.9.9.9", "::1"),
        ("fd00::/8", "FD12:0::1", "fe80::1"),
        ("::/0", "::1", "10.0.0.1"),
        ("::ffff:10.0.0.0/104", "::ffff:10.9.9.9", "11.0.0.1"),
        ("10.0.0.0/255.0.0.0", "10.9.9.9", "11.0.0.1"),
    ],
)
def test_a_rule_for_a_network_is_for_who_is_in_it(rule: str, inside: str, outside: str) -> None:
    assert host_refusal(rule) is None
    some = with_rules(acl("orders", READ, host=rule))
    assert may(some, READ, host=inside)
    assert not may(some, READ, host=outside)
    forbidden = with_rules(acl("orders", READ), acl("orders", READ, DENY, host=rule))
    assert not may(forbidden, READ, host=inside)
    assert may(forbidden, READ, host=outside)
    assert forbidden.denying(ALICE, one_host(inside), READ, TOPIC, "orders") is not None
    assert forbidden.authorize_by_type(ALICE, outside, READ, TOPIC)
    assert not may(some, READ, host="no-address")


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("kafka.example", "none of these, and would never apply"),
        ("localhost", "none of these"),
        ("010.0.0.1", "none of these"),
        ("10.0.0.1/8", "the network is 10.0.0.0/8"),
        ("10.0.0.0/33", "is not a network"),
        ("kafka.example/8", "is not a network"),
        ("10.0.0.*", "none of these"),
    ],
)
def test_a_host_that_no_client_can_have_is_refused(host: str, told: str) -> None:
    assert told in (host_refusal(host) or "")


@pytest.mark.parametrize("host", ["*", "10.0.0.1", "::1", "fe80::1%eth0", "10.0.0.0/8", "fd00::/8"])
def test_a_host_that_a_client_can_have_is_taken(host: str) -> None:
    assert host_refusal(host) is None


def test_what_is_no_address_stays_as_it_is() -> None:
    assert one_host("host:name") == "host:name"


def test_allow_if_no_acl_found_is_for_what_no_rule_is_about() -> None:
    """A rule for another principal is still a rule for the resource."""
    some = with_rules(acl("orders", READ, who=BOB), allow_if_no_acl_found=True)
    assert may(some, WRITE, "payments")
    assert not may(some, READ)
    assert not may(some, WRITE)
    assert not may(with_rules(acl("*", READ, who=BOB), allow_if_no_acl_found=True), READ)


def test_a_change_of_the_rules_holds_at_once() -> None:
    some = with_rules()
    pattern = (TOPIC, LITERAL, "orders")
    for host in ("*", HOST):
        assert not may(some, READ)
        assert some.put(pattern, Rules.of([acl("orders", READ, host=host)]))
        assert not some.put(pattern, Rules.of([acl("orders", READ, host=host)])), "nothing new"
        assert may(some, READ)
        assert some.rights(ALICE, HOST).topic(b"orders") >> READ & 1
        assert some.put(pattern, Rules.of([]))
        assert not may(some, READ)
        assert not some.rights(ALICE, HOST).topic(b"orders")
    assert some.acls() == []


def test_load_replaces_every_rule() -> None:
    some = with_rules(acl("orders", READ), acl("pay", READ, prefixed=True))
    assert load(some, [acl("pay", READ, prefixed=True), acl("payments", WRITE)])
    assert not may(some, READ)
    assert may(some, READ, "payments")
    assert may(some, WRITE, "payments")
    assert not load(some, some.acls())


def test_names_that_clients_make_up_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_REMEMBERED_BYTES", 30_000)
    some = with_rules(acl("ord", READ, prefixed=True))
    for number in range(1000):
        assert may(some, READ, f"orders-{number}", host=f"host-{number % 7}")
        rights = some.rights(ALICE, HOST)
        assert rights.topic(b"no-%d" % number) == 0
        assert len(rights.topics) <= 100
        assert some.remembered_bytes <= 30_000


def test_long_names_are_judged_and_not_remembered() -> None:
    some = with_rules(acl("ord", READ, prefixed=True))
    rights = some.rights(ALICE, HOST)
    size = some.remembered_bytes
    for number in range(100):
        name = f"orders-{number}-" + "x" * 30_000
        assert may(some, READ, name)
        assert rights.topic(name.encode()) == rights.mask(TOPIC, name)
    assert some.remembered_bytes == size
    assert rights.topics == {}


def test_rights_that_somebody_still_holds_give_their_memory_back() -> None:
    some = with_rules(acl("orders", READ))
    held = some.rights(ALICE, HOST)
    assert held.topic(b"orders") >> READ & 1
    some.put((TOPIC, LITERAL, "orders"), NO_RULES)
    assert held.topics == {}
    assert held.topic(b"orders") == 0
    assert held.topics == {}
    assert some.rights(ALICE, HOST) is not held


def test_rights_on_the_cluster_are_at_hand() -> None:
    rule = acl(CLUSTER_NAME, AclOperation.REPLICATOR_WRITE, kind=AclResourceType.CLUSTER)
    assert with_rules(rule).rights(ALICE, HOST).cluster == 1 << 13
    assert with_rules(rule).rights(BOB, HOST).cluster == 0


def test_filters_find_rules() -> None:
    some = with_rules(
        acl("*", READ), acl("ord", READ, prefixed=True), acl("orders", WRITE), acl("pay", READ)
    )

    def names(wanted: AclFilter) -> set[str]:
        return {each.resource_name for each in some.acls(wanted)}

    assert names(AclFilter()) == {"*", "ord", "orders", "pay"}
    assert names(AclFilter(TOPIC, "orders")) == {"orders"}
    assert names(AclFilter(TOPIC, "orders", pattern_type=LITERAL)) == {"orders"}
    assert names(AclFilter(TOPIC, "ord", pattern_type=PREFIXED)) == {"ord"}
    assert names(AclFilter(TOPIC, "orders", pattern_type=AclPatternType.MATCH)) == {
        "*", "ord", "orders",
    }  # fmt: skip
    assert names(AclFilter(GROUP)) == set()
    assert names(AclFilter(operation=WRITE)) == {"orders"}
    assert names(AclFilter(permission=DENY)) == set()
    assert names(AclFilter(principal=BOB)) == names(AclFilter(host=HOST)) == set()
    assert names(AclFilter(principal=ALICE, host="*")) == {"*", "ord", "orders", "pay"}


# ---- any resource of a type (KIP-679) ----


@pytest.mark.parametrize(
    ("acls", "possible"),
    [
        ([], False),
        ([acl("orders", WRITE)], True),
        ([acl("orders", READ)], False),
        ([acl("orders", AclOperation.ALL)], True),
        ([acl("orders", WRITE, host="10.9.9.9")], False),
        ([acl("orders", WRITE, who=BOB)], False),
        ([acl("orders", WRITE), acl("orders", WRITE, DENY)], False),
        ([acl("orders", WRITE), acl("ord", WRITE, DENY, prefixed=True)], False),
        ([acl("orders", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("ord", WRITE, prefixed=True), acl("orders", WRITE, DENY)], True),
        ([acl("ord", WRITE, prefixed=True), acl("ord", WRITE, DENY)], True),
        ([acl("ord", WRITE, prefixed=True), acl("o", WRITE, DENY, prefixed=True)], False),
        ([acl("o", WRITE, prefixed=True), acl("ord", WRITE, DENY, prefixed=True)], True),
        ([acl("*", WRITE), acl("o", WRITE, DENY, prefixed=True)], True),
        ([acl("*", WRITE, who="User:*")], True),
    ],
)
def test_whether_there_can_be_a_topic_to_write_to(acls: list[Acl], possible: bool) -> None:
    assert with_rules(*acls).authorize_by_type(ALICE, HOST, WRITE, TOPIC) is possible
    assert with_rules(*acls).authorize_by_type("User:root", HOST, WRITE, TOPIC)


# ---- against a slow reference ----

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "hardcode", "h"])
OPERATIONS = st.sampled_from(
    [AclOperation.ALL, READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
     AclOperation.ALTER_CONFIGS]
)  # fmt: skip
PRINCIPALS = st.sampled_from([ALICE, BOB, "User:*", "User:root"])
HOSTS = st.sampled_from(["*", HOST, "10.0.0.2"])
ACLS = st.builds(
    Acl, st.sampled_from([TOPIC, GROUP]), NAMES, PRINCIPALS, OPERATIONS,
    st.sampled_from([ALLOW, DENY]), HOSTS, st.sampled_from([LITERAL, PREFIXED]),
)  # fmt: skip
IMPLIES = {
    READ: {DESCRIBE}, WRITE: {DESCRIBE}, AclOperation.DELETE: {DESCRIBE},
    AclOperation.ALTER: {DESCRIBE}, AclOperation.ALTER_CONFIGS: {AclOperation.DESCRIBE_CONFIGS},
}  # fmt: skip


def slowly(
    acls: Iterable[Acl], who: str, host: str, operation: AclOperation, name: str, *, default: bool
) -> bool:
    """StandardAuthorizer's rules as its documentation has them, rule by rule."""
    if who == "User:root":
        return True

    def named(each: Acl) -> bool:
        if each.pattern_type == PREFIXED:
            return name.startswith(each.resource_name)
        return each.resource_name in (name, "*")

    about = [each for each in acls if each.resource_type == TOPIC and named(each)]
    of_asker = [
        each for each in about if each.principal in (who, "User:*") and each.host in (host, "*")
    ]
    for each in of_asker:
        if each.permission == DENY and each.operation in (operation, AclOperation.ALL):
            return False
    for each in of_asker:
        granted = {each.operation} | IMPLIES.get(each.operation, set())
        if each.permission == ALLOW and (granted & {operation, AclOperation.ALL}):
            return True
    return default and not about


QUESTIONS = st.tuples(
    st.sampled_from([ALICE, BOB, "User:root"]), st.sampled_from([HOST, "10.0.0.2", "10.0.0.3"]),
    st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from(["a", "abcd", "b", "*", "hard"]),
)  # fmt: skip


@settings(max_examples=60)
@given(st.sets(ACLS, max_size=12), st.booleans(), st.lists(QUESTIONS, min_size=1, max_size=10))
def test_decisions_are_those_of_the_slow_reference(
    acls: set[Acl], default: bool, questions: list[tuple[str, str, AclOperation, str]]
) -> None:
    """Also while rules are added and removed, whatever was checked before."""
    made = Authorizer(["User:root"], allow_if_no_acl_found=default)
    rows = sorted(acls, key=str)
    for step in (rows, rows[: len(rows) // 2], rows):
        load(made, step)
        for who, host, operation, name in questions:
            expected = slowly(step, who, host, operation, name, default=default)
            assert made.authorize(who, host, operation, TOPIC, name) is expected
        assert set(made.acls()) == set(step)
