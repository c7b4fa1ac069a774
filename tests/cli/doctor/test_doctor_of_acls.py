"""ACLs that can never match a request, or never decide one."""

from __future__ import annotations

import pytest

from kstore.acls import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType
from kstore.cli.doctor.acl_checks import why_never

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
CLUSTER = AclResourceType.CLUSTER
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
PREFIXED, DENY = AclPatternType.PREFIXED, AclPermission.DENY
ALICE, ANYBODY = "User:alice", "User:*"
SUPER_USERS = frozenset({"User:admin"})


@pytest.mark.parametrize(
    ("acl", "words"),
    [
        (Acl(TOPIC, "orders-*", ALICE, READ), "PREFIXED pattern 'orders-'"),
        (Acl(TOPIC, "*", ALICE, READ, pattern_type=PREFIXED), "LITERAL '*' means all"),
        (Acl(TOPIC, "my orders", ALICE, READ), "not allowed"),
        (Acl(CLUSTER, "mine", ALICE, AclOperation.ALTER), "kafka-cluster"),
        (Acl(TOPIC, "orders", "Group:staff", READ), "no client is a 'Group'"),
        (Acl(TOPIC, "orders", "User:admin", READ), "super.users"),
        (Acl(TOPIC, "orders", ALICE, READ, host="client.example"), "host name"),
        (Acl(GROUP, "billing", ALICE, WRITE), "No request needs WRITE on a GROUP"),
        (Acl(TOPIC, "orders", ALICE, AclOperation.CLUSTER_ACTION), "CLUSTER_ACTION on a TOPIC"),
    ],
)
def test_a_rule_that_never_matches_is_told(acl: Acl, words: str) -> None:
    assert words in (why_never(acl, [acl], SUPER_USERS) or "")


@pytest.mark.parametrize(
    "acl",
    [
        Acl(TOPIC, "orders", ALICE, READ),
        Acl(TOPIC, "*", ANYBODY, ALL),
        Acl(TOPIC, "orders-", ALICE, READ, pattern_type=PREFIXED),
        Acl(TOPIC, "orders", ALICE, READ, host="10.0.0.0/8"),
        Acl(TOPIC, "orders", ALICE, READ, host="::1"),
        Acl(CLUSTER, "kafka-cluster", ALICE, AclOperation.REPLICATOR_WRITE),
        Acl(AclResourceType.USER, "bob", ALICE, AclOperation.CREATE_TOKENS),
    ],
)
def test_a_rule_that_can_match_is_not(acl: Acl) -> None:
    assert why_never(acl, [acl], SUPER_USERS) is None


ALLOW_READ = Acl(TOPIC, "orders", ALICE, READ)


@pytest.mark.parametrize(
    ("denies", "wins"),
    [
        (Acl(TOPIC, "orders", ALICE, READ, DENY), True),
        (Acl(TOPIC, "*", ANYBODY, ALL, DENY), True),
        (Acl(TOPIC, "ord", ALICE, READ, DENY, pattern_type=PREFIXED), True),
        (Acl(TOPIC, "orders", ALICE, WRITE, DENY), False),
        (Acl(TOPIC, "orders", ALICE, READ, DENY, host="10.0.0.1"), False),
        (Acl(TOPIC, "orders", "User:bob", READ, DENY), False),
        (Acl(TOPIC, "payments", ALICE, READ, DENY), False),
        (Acl(GROUP, "orders", ALICE, READ, DENY), False),
    ],
)
def test_a_rule_that_is_denied_in_any_case_is_told(denies: Acl, wins: bool) -> None:
    found = why_never(ALLOW_READ, [ALLOW_READ, denies], SUPER_USERS)
    assert (found is not None) is wins


def test_all_topics_are_not_denied_by_a_prefix() -> None:
    everything = Acl(TOPIC, "*", ALICE, READ)
    denies = Acl(TOPIC, "o", ALICE, READ, DENY, pattern_type=PREFIXED)
    assert why_never(everything, [denies], SUPER_USERS) is None
