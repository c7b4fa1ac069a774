"""The log of denials: the contents of a line, the limit on the number of lines, and that names
cannot forge lines. tests/fast/broker/test_rights.py and test_audit.py test which requests are
logged.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kstore.acls import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType
from kstore.broker.runtime.security import audit_log
from kstore.broker.runtime.security.audit_log import MAX_KINDS, MAX_KINDS_OF_ONE, AuditLog
from kstore.broker.state.security.authorizer import Authorizer
from tests.broker.harness.plane_harness import ManualLoop
from tests.reference.acl_rules import load

PRODUCE, FETCH = 0, 1
TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER
READ = AclOperation.READ


class Heard:
    """An audit log and the lines that it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.loop = ManualLoop()
        self.authorizer = Authorizer()
        self.log = AuditLog(self.loop, self.authorizer)  # type: ignore[arg-type]
        self._caplog = caplog

    def deny(self, who: str = "User:eve", name: str = "orders", **other: Any) -> None:
        asked = {
            "host": "10.0.0.1", "operation": READ, "resource_type": TOPIC, "api_key": FETCH,
        }  # fmt: skip
        self.log.denied(principal=who, name=name, **(asked | other))

    def lines(self) -> list[str]:
        """The lines since the last call."""
        found = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return found


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Heard:
    caplog.set_level(logging.INFO, logger="kstore.authorizer")
    return Heard(caplog)


def test_a_line_says_who_was_denied_what_from_where_and_by_which_rule(heard: Heard) -> None:
    heard.deny()
    assert heard.lines() == [
        'authorizer: denied principal="User:eve" host="10.0.0.1" request=Fetch operation=READ'
        ' resource=TOPIC:"orders" rule=none'
    ]
    deny = Acl(TOPIC, "ord", "User:*", READ, AclPermission.DENY, "*", AclPatternType.PREFIXED)
    load(heard.authorizer, [deny])
    heard.deny(host="10.0.0.2")
    (line,) = heard.lines()
    assert line.endswith(f'rule="{deny}"')
    heard.deny(operation=AclOperation.REPLICATOR_WRITE, resource_type=CLUSTER, name="kafka-cluster")
    assert (
        'operation=REPLICATOR_WRITE resource=CLUSTER:"kafka-cluster" rule=none' in heard.lines()[0]
    )


@pytest.mark.parametrize(
    "acl",
    [
        Acl(TOPIC, "orders", "User:eve", AclOperation.ALL, AclPermission.DENY),
        Acl(TOPIC, "*", "User:eve", READ, AclPermission.DENY, "10.0.0.1"),
        Acl(TOPIC, "o", "User:*", READ, AclPermission.DENY, "*", AclPatternType.PREFIXED),
    ],
)
def test_the_rule_that_denies_is_found_for_every_form_of_rules(acl: Acl) -> None:
    authorizer = Authorizer()
    load(authorizer, [acl, Acl(TOPIC, "orders", "User:eve", AclOperation.WRITE)])
    assert not authorizer.authorize("User:eve", "10.0.0.1", READ, TOPIC, "orders")
    assert authorizer.denying("User:eve", "10.0.0.1", READ, TOPIC, "orders") == acl
    others = [
        Acl(TOPIC, "order", "User:eve", READ, AclPermission.DENY),
        Acl(TOPIC, "orders", "User:adam", READ, AclPermission.DENY),
        Acl(TOPIC, "orders", "User:eve", READ, AclPermission.DENY, "10.0.0.2"),
        Acl(TOPIC, "orders", "User:eve", AclOperation.DELETE, AclPermission.DENY),
        Acl(TOPIC, "orders", "User:eve", AclOperation.WRITE),
    ]
    load(authorizer, others)
    assert authorizer.denying("User:eve", "10.0.0.1", READ, TOPIC, "orders") is None


def test_the_same_denial_is_told_once_a_window_with_how_many_more_there_were(heard: Heard) -> None:
    for _ in range(5):
        heard.deny()
    heard.deny(api_key=PRODUCE)
    assert len(heard.lines()) == 2
    (timer,) = heard.loop.timers
    assert timer.delay_s == audit_log.WINDOW_S
    heard.loop.fire_timers()
    assert heard.lines() == [
        'authorizer: denied principal="User:eve" more=4, in the last 10 seconds'
    ]
    heard.deny()
    assert len(heard.lines()) == 1, "a new window"
    heard.loop.fire_timers()
    assert heard.lines() == [], "nothing was left out"
    assert heard.loop.timers == [], "nothing runs while nothing is denied"


def test_one_principal_has_few_lines_and_takes_none_from_others(heard: Heard) -> None:
    for number in range(1000):
        heard.deny(name=f"topic-{number}", host=f"10.0.0.{number}")
    assert len(heard.lines()) == MAX_KINDS_OF_ONE
    heard.deny("User:adam")
    assert len(heard.lines()) == 1
    heard.loop.fire_timers()
    (line,) = heard.lines()
    assert f"more={1000 - MAX_KINDS_OF_ONE}," in line


def test_many_principals_have_few_lines_together_and_nothing_grows_with_them(heard: Heard) -> None:
    for number in range(1000):
        heard.deny(f"User:{number}")
        heard.deny(f"User:{number}")
    assert len(heard.lines()) == MAX_KINDS
    assert len(heard.log._limit._admitted) == MAX_KINDS
    assert len(heard.log._limit._suppressed) <= MAX_KINDS + 1
    heard.loop.fire_timers()
    last = heard.lines()[-1]
    assert last == (
        f"authorizer: denied to other principals more={2 * (1000 - MAX_KINDS)},"
        " in the last 10 seconds"
    )


def test_names_can_forge_neither_lines_nor_fields_and_long_ones_are_cut(heard: Heard) -> None:
    heard.deny("User:e\nve", name='x" rule=none\r\n\x1b[31mauthorizer: \u2028denied \ud800')
    heard.deny(name="y" * 100_000)
    forged, long = heard.lines()
    assert forged.isprintable()
    assert forged.isascii()
    assert 'principal="User:e\\nve"' in forged
    assert 'resource=TOPIC:"x\\" rule=none\\r\\n\\u001b[31m' in forged
    assert len(long) < 500
    assert 'y"...100000 rule=none' in long


def test_nothing_is_kept_or_told_where_the_logger_is_above_info(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="kstore.authorizer")
    heard.deny()
    assert heard.lines() == []
    assert heard.loop.timers == []
