"""`kstore doctor --config`: the machine and the settings of a broker that does not run."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from kstore.cli.app import run
from kstore.cli.doctor import clock_check
from kstore.cli.doctor.checks import BROKER_CHECKS, examine
from kstore.cli.doctor.contradictions import RULES
from kstore.cli.doctor.findings import Finding, Limits, Severity
from kstore.cli.doctor.machine import Machine, mount_of, read_mounts
from kstore.config import BrokerConfig
from tests.cli.doctor.conftest import findings

MIB = 1 << 20
# The settings of a rule -> values that break it; with the defaults of the others.
BROKEN: dict[tuple[str, ...], dict[str, str]] = {
    ("min.insync.replicas", "default.replication.factor"): {"min.insync.replicas": "2"},
    ("transaction.state.log.min.isr", "transaction.state.log.replication.factor"): {
        "transaction.state.log.min.isr": "2"
    },
    ("min.insync.replicas", "unclean.leader.election.enable"): {
        "min.insync.replicas": "2", "default.replication.factor": "3",
        "unclean.leader.election.enable": "true",
    },
    ("message.max.bytes", "socket.request.max.bytes"): {
        "message.max.bytes": "2000", "socket.request.max.bytes": "1000"
    },
    ("log.retention.bytes", "log.segment.bytes"): {
        "log.retention.bytes": str(MIB), "log.segment.bytes": str(2 * MIB)
    },
    ("log.retention.ms", "log.roll.ms"): {"log.retention.ms": "1000", "log.roll.ms": "2000"},
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"): {
        "group.min.session.timeout.ms": "2000000"
    },
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"): {
        "group.consumer.heartbeat.interval.ms": "10000",
        "group.consumer.max.heartbeat.interval.ms": "10000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.session.timeout.ms": "10000",
    },
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"): {
        "replica.fetch.wait.max.ms": "30000"
    },
    ("super.users", "authorizer.class.name"): {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    },
    ("advertised.listeners", "listeners"): {
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
    },
    ("kstore.http.listener", "kstore.http.token"): {"kstore.http.listener": "http://0.0.0.0:8080"},
}  # fmt: skip


def machine(folder: Path, settings: Mapping[str, str] | None = None) -> Machine:
    base = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    config = BrokerConfig.load(None, base | dict(settings or {}), {})
    return Machine(config, "server.properties")


def find(check: str, of: Machine, limits: Limits | None = None) -> list[Finding]:
    return findings(examine(BROKER_CHECKS, of, limits or Limits(), [check]))


# ---- settings ----


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " and ".join(rule.settings))
def test_settings_that_contradict_each_other_are_found(tmp_path: Path, rule) -> None:
    assert not rule.contradict(machine(tmp_path).config)
    settings = BROKEN[rule.settings]
    found = {each.evidence: each for each in find("contradictions", machine(tmp_path, settings))}
    (own,) = [each for each in found.values() if each.meaning == rule.meaning]
    assert own.severity == rule.severity
    assert all(name in own.evidence for name in rule.settings)
    assert all(f"{name}={value} (override)" in own.evidence for name, value in settings.items()
               if name in rule.settings)  # fmt: skip


def test_a_setting_that_nobody_knows_is_found(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={tmp_path}/data\nnum.partitons=3\n")
    (found,) = find("settings", Machine(BrokerConfig.load(path, None, {}), str(path)))
    assert found.subject == "num.partitons"
    assert f"{path} line 2" in found.evidence
    assert "num.partitions" in found.evidence


# ---- limits, clock ----


def test_the_limits_of_the_machine_are_compared(tmp_path: Path) -> None:
    of = machine(tmp_path)
    (files,) = find("open-files", of, Limits(open_files=1 << 30))
    assert (files.severity, "no broker runs here" in files.evidence) == (Severity.WARNING, True)
    (maps,) = find("memory-maps", of, Limits(memory_maps=1 << 40))
    assert "vm.max_map_count is" in maps.evidence
    assert find("open-files", of, Limits(open_files=1)) == []
    assert find("memory-maps", of, Limits(memory_maps=1)) == []


def test_more_segments_than_files_may_be_open_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number:020}.log").touch()
    monkeypatch.setattr(Machine, "open_files", lambda self: (0, 2))
    (found,) = find("open-files", machine(tmp_path))
    assert found.severity == Severity.ERROR
    assert "3 segment files" in found.evidence


def test_a_clock_that_nothing_keeps_right_is_found() -> None:
    assert -1 <= clock_check.kernel_clock_state() <= clock_check.TIME_ERROR
    (found,) = clock_check.clock_finding(clock_check.TIME_ERROR)
    assert "not synchronised" in found.evidence
    assert [list(clock_check.clock_finding(state)) for state in range(-1, 5)] == [[]] * 6


# ---- disks ----


def test_little_space_and_a_slow_disk_are_found(tmp_path: Path) -> None:
    of = machine(tmp_path)
    (space,) = find("disk-space", of, Limits(free_percent=100.0))
    assert "GiB are free" in space.evidence
    assert find("disk-space", of, Limits(free_percent=0.0)) == []
    (speed,) = find("disk-speed", of, Limits(sync_ms=0.0))
    assert "8 forced writes of 4 KB took" in speed.evidence
    assert find("disk-speed", of, Limits(sync_ms=1e9)) == []
    assert list(tmp_path.iterdir()) == []


def test_log_dirs_that_can_not_be_used_are_found(tmp_path: Path) -> None:
    file, one, two = tmp_path / "file", tmp_path / "one", tmp_path / "two"
    file.touch()
    one.mkdir()
    two.mkdir()
    found = find("log-dirs", machine(tmp_path, {"log.dirs": f"{file},{one},{two}"}))
    assert [(each.severity, each.subject) for each in found] == [
        (Severity.ERROR, str(file)), (Severity.WARNING, str(two)),
    ]  # fmt: skip
    assert f"same file system as {one}" in found[1].evidence


def test_a_log_dir_in_memory_is_found(tmp_path: Path) -> None:
    if mount_of("/dev/shm", machine(tmp_path).mounts) is None or not os.path.isdir("/dev/shm"):
        return  # nothing is in memory on this machine
    (found,) = find("file-systems", machine(tmp_path, {"log.dirs": "/dev/shm/kstore-doctor"}))
    assert "is mounted on /dev/shm" in found.evidence


MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:30 / /srv/a\040b rw - nfs4 host:/x rw,vers=4.2
23 21 0:31 / /srv/ro ro,nosuid shared:2 - xfs /dev/sdb1 rw
24 21 0:32 / /srv/memory rw - tmpfs tmpfs rw
25 21 0:33 / /srv/layer rw - overlay overlay rw
26 21 0:34 / /srv/user rw - fuse.sshfs host: rw
"""


@pytest.mark.parametrize(
    ("folder", "severities"),
    [
        ("/srv", []),
        ("/srv/a b", [Severity.ERROR]),
        ("/srv/ro", [Severity.ERROR]),
        ("/srv/memory", [Severity.WARNING]),
        ("/srv/layer", [Severity.WARNING]),
        ("/srv/user", [Severity.ERROR]),
    ],
)
def test_each_kind_of_file_system_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, severities: list[Severity]
) -> None:
    of = machine(tmp_path, {"log.dirs": folder})
    of.mounts = read_mounts(MOUNTS)
    monkeypatch.setattr("kstore.cli.doctor.machine_checks.existing_folder", lambda path: path)
    assert [each.severity for each in find("file-systems", of)] == severities


# ---- ports ----


def test_a_port_that_somebody_has_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "kstore.http.listener": f"http://127.0.0.1:{port}",
        }
        found = find("ports", machine(tmp_path, settings))
    assert [each.subject for each in found] == [
        f"listeners 127.0.0.1:{port}", f"kstore.http.listener 127.0.0.1:{port}",
    ]  # fmt: skip
    assert all(f"sport = :{port}" in each.fix for each in found)


def test_an_advertised_name_without_an_address_is_found(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://nowhere.invalid:9092"}
    (found,) = find("advertised", machine(tmp_path, settings))
    assert "nowhere.invalid cannot be resolved here" in found.evidence


# ---- the command ----


def test_the_command_checks_settings_before_the_broker_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    words = ["doctor", "--config", str(path), "--json", "-v"]
    assert run([*words, "--only", "contradictions"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == '{"check": "contradictions", "ok": true}'
    assert run([*words, "--override", "min.insync.replicas=2"]) == 1
    *rows, summary = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["check"] for row in rows} == {check.name for check in BROKER_CHECKS}
    assert summary["summary"]["checks"] == len(BROKER_CHECKS)
    assert not (tmp_path / "data").exists()


def test_settings_that_a_broker_refuses_are_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=none\n")
    assert run(["doctor", "--config", str(path), "--json"]) == 1
    row, _ = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["check"], row["subject"]) == ("settings", "num.partitions")
    assert f"{path} line 1" in row["evidence"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--only", "nothing"),
        ("--override", "a=b"),
        ("--config", "no-such-file"),
        ("--max-transaction", "soon"),
        ("--min-free", "101"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *arguments]) == 2
    capsys.readouterr()


def test_the_list_names_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--list", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["check"] for row in rows} >= {check.name for check in BROKER_CHECKS}
