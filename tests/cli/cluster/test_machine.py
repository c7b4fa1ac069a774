"""kstore/cli/cluster/machine.py: how many cores this process may use, and the machine's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.cli.cluster import machine


@pytest.fixture
def cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of eight cores, and the folder of its cgroups, in none of which this process is."""
    groups = tmp_path / "cgroup"
    groups.mkdir()
    monkeypatch.setattr(machine, "CGROUPS", groups)
    monkeypatch.setattr(machine, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    return groups


def in_group(groups: Path, line: str) -> None:
    (groups.parent / "own").write_text(line + "\n")


def test_without_limits_it_is_what_the_scheduler_gives(cores: Path) -> None:
    assert machine.usable_cores() == 8
    in_group(cores, "0::/user/app")
    assert machine.usable_cores() == 8


@pytest.mark.parametrize(
    ("own", "around", "found"),
    [("max 100000", "max 100000", 8), ("250000 100000", "max 100000", 2),
     ("max 100000", "300000 100000", 3), ("50000 100000", "max 100000", 1),
     ("1200000 100000", "max 100000", 8)],
)  # fmt: skip
def test_a_cgroup_limits_it_and_so_does_one_around_it(
    cores: Path, own: str, around: str, found: int
) -> None:
    in_group(cores, "0::/user/app")
    (cores / "user" / "app").mkdir(parents=True)
    (cores / "user" / "cpu.max").write_text(around + "\n")
    (cores / "user" / "app" / "cpu.max").write_text(own + "\n")
    assert machine.usable_cores() == found


@pytest.mark.parametrize(("quota", "found"), [("-1", 8), ("400000", 4), ("1000", 1)])
def test_a_cgroup_of_version_1_limits_it_too(cores: Path, quota: str, found: int) -> None:
    in_group(cores, "5:memory:/else\n4:cpu,cpuacct:/app")
    (cores / "cpu" / "app").mkdir(parents=True)
    (cores / "cpu" / "app" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (cores / "cpu" / "app" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.usable_cores() == found


def test_a_machine_is_called_by_its_name_or_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "id").write_text("0123abc\n")
    monkeypatch.setattr(machine, "MACHINE_ID", tmp_path / "id")
    monkeypatch.setattr("socket.gethostname", lambda: "rocket")
    assert machine.machine_name() == "rocket"
    monkeypatch.setattr("socket.gethostname", lambda: "localhost")
    assert machine.machine_name() == "0123abc"
    (tmp_path / "id").unlink()
    assert machine.machine_name() == "localhost"
