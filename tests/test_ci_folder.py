"""The folder for temporary files of `make test`: in memory only if that is large enough."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.sources import ROOT

FREE = {
    "proc/meminfo": "MemTotal: 24000000 kB\nMemAvailable:   9000000 kB\n",
    "proc/mounts": "tmpfs {root}/dev/shm tmpfs rw,relatime 0 0\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "df": "#!/bin/sh\necho Filesystem\necho tmpfs 9000000 1000 5000000 1% /dev/shm\n",
}


def chosen(root: Path, changed: dict[str, str], **variables: str) -> str:
    """The script's output on a machine with these files; df is one of them."""
    (root / "dev/shm").mkdir(parents=True)
    for name, text in (FREE | changed).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{root}", str(root)))
    (root / "df").chmod(0o755)
    environment = {"PATH": f"{root}:{os.environ['PATH']}"} | variables
    done = subprocess.run(
        [ROOT / ".ci/folder", str(root)], env=environment, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


def test_it_is_in_memory_if_there_is_enough_and_nobody_says_where(tmp_path: Path) -> None:
    assert chosen(tmp_path / "a", {}) == str(tmp_path / "a/dev/shm")
    assert chosen(tmp_path / "b", {}, TMPDIR="/elsewhere") == "/elsewhere"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proc/meminfo", "MemAvailable:   8000000 kB\n"),
        ("proc/meminfo", ""),
        ("proc/mounts", "tmpfs {root}/dev/shm tmpfs rw,nosuid,noexec,relatime 0 0\n"),
        ("sys/fs/cgroup/memory.max", "8000000000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000000000\n"),
        ("df", "#!/bin/sh\necho Filesystem\necho shm 65536 0 65536 0% /dev/shm\n"),
        ("df", "#!/bin/sh\nexit 1\n"),
    ],
)
def test_it_is_on_the_disk_where_memory_is_small_or_runs_no_programs(
    tmp_path: Path, name: str, text: str
) -> None:
    assert chosen(tmp_path, {name: text}) == "/tmp"
