"""The authorizer compared with Kafka's own StandardAuthorizer: random rules and questions, equal
answers; and the operations of each resource type.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kstore.acls import (
    SUPPORTED_OPERATIONS,
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    mask_of,
)
from kstore.broker.state.security.authorizer import Authorizer
from tests.beside.programs import output_of
from tests.conformance.kafka_jars import classpath, java_program
from tests.reference.acl_rules import load

SOURCE = Path(__file__).parents[1] / "java" / "Authorizations.java"
RULE_SETS, QUESTIONS, SEED = 400, 40, 20261122
KINDS = [kind for kind in AclResourceType if kind > AclResourceType.ANY]
OPERATIONS = [each for each in AclOperation if each > AclOperation.ANY]
NAMES = ("*", "a", "ab", "abc", "abd", "b", "h", "hardcode", "kafka-cluster", "ä", "a:b")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:root", "Robot:alice", "User:CN=a,O=b:c")
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
ASKERS = [each for each in PRINCIPALS if each != "User:*"]


def _acl(dice: random.Random, kinds: list[AclResourceType]) -> Acl:
    return Acl(
        dice.choice(kinds), dice.choice(NAMES), dice.choice(PRINCIPALS), dice.choice(OPERATIONS),
        dice.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)),
        dice.choice(("*", "*", *HOSTS)),
        dice.choice((AclPatternType.LITERAL, AclPatternType.PREFIXED)),
    )  # fmt: skip


def _line(acl: Acl) -> str:
    numbers = (int(acl.operation), int(acl.permission))
    words = (int(acl.resource_type), acl.resource_name, int(acl.pattern_type), acl.principal,
             acl.host, *numbers)  # fmt: skip
    return "\t".join(("acl", *map(str, words)))


@pytest.fixture(scope="module")
def questions() -> tuple[list[str], list[tuple[str, int]]]:
    """The rules that Java gets, and each question with kstore's answer."""
    dice = random.Random(SEED)
    told, ours = [], []
    for kind in KINDS:
        told.append(f"supported\t{int(kind)}")
        ours.append((told[-1], mask_of(SUPPORTED_OPERATIONS[kind])))
    for _ in range(RULE_SETS):
        by_default = dice.random() < 0.3
        authorizer = Authorizer(["User:root"], allow_if_no_acl_found=by_default)
        told.append(f"new\tUser:root\t{str(by_default).lower()}")
        kinds = dice.sample(KINDS, 2)
        acls = {_acl(dice, kinds) for _ in range(dice.randrange(12))}
        load(authorizer, acls)
        told += sorted(map(_line, acls))
        for _ in range(QUESTIONS):
            who, host = dice.choice(ASKERS), dice.choice(HOSTS)
            operation, kind = dice.choice(OPERATIONS[1:]), dice.choice(kinds)
            asked = f"{who}\t{host}\t{int(operation)}\t{int(kind)}"
            if dice.random() < 0.25:
                told.append(f"any\t{asked}")
                answer = authorizer.authorize_by_type(who, host, operation, kind)
            else:
                name = dice.choice(NAMES)
                # Kafka's does not find the rules for "*" if a longer name begins with a star: with
                # allow.everyone.if.no.acl.found, those deny nothing there. Ours do.
                name += "" if name == "*" else dice.choice(("", "", "c", "d"))
                told.append(f"ask\t{asked}\t{name}")
                answer = authorizer.authorize(who, host, operation, kind, name)
            ours.append((told[-1], int(answer)))
    return told, ours


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_jars")
def test_decisions_are_kafkas(questions: tuple[list[str], list[tuple[str, int]]]) -> None:
    told, ours = questions
    java = [java_program(), "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", classpath()]
    written = output_of([*java, SOURCE], input="\n".join(told), encoding="utf-8")
    theirs = [int(line) for line in written.split()]
    different = [
        f"{question}: {answer}, Kafka {kafkas}"
        for (question, answer), kafkas in zip(ours, theirs, strict=True)
        if answer != kafkas
    ]
    assert not different
    assert {answer for question, answer in ours if question.startswith("ask")} == {0, 1}
