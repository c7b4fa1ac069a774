"""`kstore doctor` and a sick cluster: each check finds what is wrong there, and says what to do."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kstore.cli.app import run
from kstore.cli.doctor.checks import BROKER_CHECKS, CLUSTER_CHECKS, examine
from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.findings import Finding, Limits, NotChecked, Severity
from kstore.cli.doctor.machine import Machine
from kstore.config import BrokerConfig
from kstore.errors import KafkaError
from tests.cli.doctor.conftest import SickCluster

pytestmark = pytest.mark.slow
CLOSED = "127.0.0.1:1"

# Check -> limits, and for each finding: subject, severity, words of its evidence, words of its fix.
EXPECTED: dict[str, tuple[Limits, list[tuple[str, str, str, str]]]] = {
    "broker-clocks": (
        Limits(clock_ms=-(10**10)), [("broker ", "warning", "after this machine's", "timedatectl")]
    ),
    "future-records": (
        Limits(), [("topic future", "warning", "hours ahead", "message.timestamp.after.max.ms")]
    ),
    "brokers": (Limits(), [("broker 3", "error", "replicas", "start broker 3")]),
    "offline-partitions": (
        Limits(), [("topic alone", "error", "no leader: alone:0", "kstore elect alone:0 --unclean")]
    ),
    "isr": (
        Limits(),
        [
            ("topic orders", "warning", "3 of 3 partitions", "start the broker"),
            ("topic strict", "error", "isr [1] of [1, 3]", "start the broker"),
        ],
    ),
    "leaders": (Limits(), [("leaders", "warning", "turned:0", "kstore elect --all")]),
    "single-replicas": (
        Limits(), [("replication", "warning", "alone", "kstore reassign start alone:0=1,2")]
    ),
    "topic-configs": (
        Limits(),
        [
            ("topic never", "error", "min.insync.replicas=3, and it has 2 replicas",
             "kstore config set topic never min.insync.replicas=2"),
            ("topic small", "warning", "retention.bytes=1000", "segment.bytes=1048576"),
        ],
    ),
    "brokers-agree": (
        Limits(), [("message.max.bytes", "warning", "broker 2: 2000000", "server.properties")]
    ),
    "broker-log-dirs": (
        Limits(free_percent=100.0),
        [("broker 1 ", "", "are free", "--broker 1"), ("broker 2 ", "", "are free", "--broker 2")],
    ),
    "lag": (
        Limits(lag_records=10),
        [
            ("group late", "warning", "orders:1", "kstore group describe late"),
            ("group slow", "warning", "orders:0", "kstore group describe slow"),
        ],
    ),
    "group-offsets": (
        Limits(),
        [("group late", "error", "orders:1 at 3, the log has 10 to 20",
          "kstore group reset-offsets late --topic orders --to-earliest")],
    ),
    "long-transactions": (
        Limits(transaction_ms=0),
        [("transaction stuck", "warning", "Ongoing for", "--transactional-id stuck")],
    ),
    "hanging-transactions": (
        Limits(hanging_ms=0),
        [("t:0", "error", "producer 4000000", "kstore txn abort t:0 --start-offset 0")],
    ),
    "acls": (
        Limits(),
        [("ACL of User:alice", "warning", "orders-*", "--topic 'orders-*' --pattern literal")],
    ),
}  # fmt: skip
IN_TESTS_OF_THEIR_OWN = {
    "answer", "advertised-listeners", "bootstrap", "certificates", "clock", "controller",
}  # fmt: skip


def test_each_check_has_a_test_that_provokes_it() -> None:
    assert {check.name for check in CLUSTER_CHECKS} == {*EXPECTED, *IN_TESTS_OF_THEIR_OWN}


@pytest.mark.parametrize("check", EXPECTED)
def test_a_check_finds_what_is_wrong(sick: SickCluster, check: str) -> None:
    limits, expected = EXPECTED[check]
    found = [each for each in sick.find(check, limits) if "__" not in each.subject]
    if check == "broker-clocks":
        found = found[:1]  # of the one or two that lead partitions of internal topics
    assert len(found) == len(expected), found
    for each, (subject, severity, evidence, fix) in zip(found, expected, strict=True):
        assert each.subject.startswith(subject)
        assert each.severity == (severity or each.severity)
        assert evidence in each.evidence
        assert each.meaning
        assert fix in each.fix


def test_an_advertised_name_that_leads_nowhere_is_found(sick: SickCluster) -> None:
    assert sick.find("advertised-listeners") == []
    first, *_ = sick.find("advertised-listeners", servers=sick.outside)
    assert (first.severity, first.subject) == (Severity.ERROR, "broker 1")
    assert "nowhere.invalid" in first.evidence


def test_one_address_of_several_that_is_dead_is_a_warning(sick: SickCluster) -> None:
    assert sick.find("bootstrap") == []
    (found,) = sick.find("bootstrap", servers=f"{CLOSED},{sick.alive}")
    assert found.severity == Severity.WARNING
    assert CLOSED in found.subject


def test_a_cluster_without_a_controller_is_found() -> None:
    view = SimpleNamespace(cluster=SimpleNamespace(controller_id=-1), alive={1})
    (check,) = [check for check in CLUSTER_CHECKS if check.name == "controller"]
    (found,) = check.find(cast("ClusterView", view), Limits())
    assert "the controller's id is -1" in found.evidence


def test_an_offline_log_dir_is_found() -> None:
    row = SimpleNamespace(error=KafkaError("disk error"), total_bytes=-1, usable_bytes=-1)
    view = SimpleNamespace(log_dirs={1: {"/data": row}})
    (check,) = [check for check in CLUSTER_CHECKS if check.name == "broker-log-dirs"]
    (found,) = check.find(cast("ClusterView", view), Limits())
    assert (found.subject, found.severity) == ("broker 1 /data", Severity.ERROR)


def rows_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_command_tells_all_of_it_and_fails(
    sick: SickCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "-b", sick.alive, "--max-lag", "10", "--json", "--verbose"]) == 1
    *rows, summary = rows_of(capsys)
    assert {row["check"] for row in rows} == {check.name for check in CLUSTER_CHECKS}
    assert not [row for row in rows if "not_checked" in row]
    errors = [row for row in rows if row.get("severity") == "error"]
    assert summary["summary"]["errors"] == len(errors) > 3
    assert set(errors[0]) == {"check", "severity", "subject", "evidence", "meaning", "fix"}


def test_a_warning_alone_is_no_failure_unless_it_is_strict(
    sick: SickCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "-b", sick.alive, "--only", "leaders"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "WARNING  leaders: leaders\n    found    1 partition: turned:0\n" in said
    assert said.endswith("2 checks: 0 errors, 1 warning\n")
    assert run([*words, "--strict"]) == 1
    capsys.readouterr()


def test_where_no_broker_answers_the_rest_is_not_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["doctor", "-b", CLOSED, "--json"]) == 1
    *rows, summary = rows_of(capsys)
    assert {row["check"] for row in rows if row.get("severity") == "error"} == {
        "answer", "bootstrap",
    }  # fmt: skip
    others = len(CLUSTER_CHECKS) - len({"answer", "bootstrap", "clock"})
    assert summary["summary"]["not_checked"] == others


def test_a_check_that_fails_is_told_with_its_reason() -> None:
    (check,) = [check for check in CLUSTER_CHECKS if check.name == "acls"]

    class Refusing:
        @property
        def acls(self) -> list[object]:
            raise KafkaError("not allowed")

        def broker_value(self, name: str) -> None:
            return None

    ((name, result),) = examine([check], cast("ClusterView", Refusing()), Limits())
    assert isinstance(result, NotChecked)
    assert name == "acls"
    assert "not allowed" in result.reason


def test_the_settings_of_a_running_broker_are_checked_beside_it(sick: SickCluster) -> None:
    """Its limits are those of its process, and its ports are no others'."""
    broker = sick.cluster[1]
    names = ("log.dirs", "listeners", "listener.security.protocol.map", "advertised.listeners")
    config = BrokerConfig.load(None, {name: broker.settings[name] for name in names}, {})
    machine = Machine(config, "server.properties")
    assert machine.pid == broker.pid
    limits = Limits(open_files=1 << 30, memory_maps=1 << 40)
    found = {
        name: result
        for name, result in examine(BROKER_CHECKS, machine, limits)
        if isinstance(result, Finding)
    }
    assert f"process {broker.pid} has" in found["open-files"].evidence
    assert "are in use" in found["memory-maps"].evidence
    assert "nowhere.invalid cannot be resolved" in found["advertised"].evidence
    assert "ports" not in found
