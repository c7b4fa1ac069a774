"""How much data may be unwritten, by the limits of the machine and its control groups."""

from __future__ import annotations

from pathlib import Path

from kstore.log.write_budget import machine_budget

GIB = 1 << 30
MIB = 1 << 20


def machine(root: Path, files: dict[str, str]) -> str:
    given = {
        "proc/meminfo": "MemTotal: 99999999 kB\nMemAvailable: 16777216 kB\n",
        "proc/sys/vm/dirty_background_ratio": "10\n",
        "proc/sys/vm/dirty_ratio": "20\n",
        "proc/sys/vm/dirty_background_bytes": "0\n",
        "proc/sys/vm/dirty_bytes": "0\n",
        **files,
    }
    for name, content in given.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


def test_half_of_what_writers_are_let_alone_with(tmp_path: Path) -> None:
    root = machine(tmp_path, {})
    assert machine_budget(1, root) == int(16 * GIB * 0.15 / 2)


def test_log_dirs_share_it(tmp_path: Path) -> None:
    root = machine(tmp_path, {})
    assert machine_budget(4, root) == machine_budget(1, root) // 4


def test_limits_in_bytes_win(tmp_path: Path) -> None:
    files = {
        "proc/sys/vm/dirty_background_bytes": f"{100 * MIB}\n",
        "proc/sys/vm/dirty_bytes": f"{300 * MIB}\n",
    }
    assert machine_budget(1, machine(tmp_path, files)) == 100 * MIB


def test_a_background_limit_above_the_other_counts_as_half_of_it(tmp_path: Path) -> None:
    files = {
        "proc/sys/vm/dirty_background_bytes": f"{900 * MIB}\n",
        "proc/sys/vm/dirty_bytes": f"{400 * MIB}\n",
    }
    assert machine_budget(1, machine(tmp_path, files)) == 150 * MIB


def test_the_tightest_control_group_above_the_process_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/outer/memory.current": f"{GIB}\n",
        "sys/fs/cgroup/outer/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 0\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
    }
    assert machine_budget(1, machine(tmp_path, files)) == int(2 * GIB * 0.15 / 2)


def test_the_older_control_groups_count_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/x\n4:memory:/box\n0::/\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{GIB // 2}\n",
        "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 0\n",
    }
    assert machine_budget(1, machine(tmp_path, files)) == int(GIB * 0.15 / 4)


def test_a_small_machine_has_some_steps_at_least(tmp_path: Path) -> None:
    files = {"proc/meminfo": "MemAvailable: 1024 kB\n"}
    assert machine_budget(8, machine(tmp_path, files)) == 16 * MIB


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert machine_budget(2, str(tmp_path)) == 128 * MIB
