"""The disks with faults themselves: calls with a fault wait or fail, and all others continue."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.faults.disks import Disk, FaultyDisk

pytestmark = pytest.mark.timeout(60)

CHANGES = {
    "open": "os.open(f + '/new', os.O_CREAT | os.O_WRONLY)",
    "pwrite": "os.pwrite(d, b'x', 0)",
    "pwritev": "os.pwritev(d, [b'x', b'y'], 0)",
    "fdatasync": "os.fdatasync(d)",
    "ftruncate": "os.ftruncate(d, 0)",
    "unlink": "os.unlink(f + '/old')",
    "rename": "os.rename(f + '/old', f + '/older')",
    "mkdir": "os.mkdir(f + '/folder')",
}
QUICK = {"pwritev", "rename"}
"""One of a file and one of a folder."""


def slow(name: str) -> ParameterSet:
    """A change that only `make test` tries: each takes a process."""
    return pytest.param(name, marks=pytest.mark.slow)


def script(change: str) -> str:
    """Open a file, say so, wait for a line, change something, say so."""
    return (
        "import os, sys; f = sys.argv[1]; open(f + '/old', 'w').write('x' * 9000)\n"
        "d = os.open(f + '/old', os.O_RDWR)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        f"try: {change}\n"
        "except OSError as problem: print(problem.errno, flush=True)\n"
        "else: print('done', flush=True)\n"
    )


def start(disk: Disk, change: str) -> subprocess.Popen[str]:
    """A process that is about to change something."""
    process = subprocess.Popen(
        [sys.executable, "-c", script(change), str(disk.folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | dict(disk.environment),
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def go_on(process: subprocess.Popen[str]) -> None:
    """Let it make its change."""
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("name", ["pwrite", *map(slow, ("open", "unlink", "rename", "mkdir"))])
def test_who_changes_something_on_a_frozen_disk_waits_until_it_thaws(disk: Disk, name: str) -> None:
    process = start(disk, CHANGES[name])
    with disk.frozen():
        go_on(process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
    assert process.communicate()[0] == "done\n"


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in CHANGES])
def test_every_change_fails_with_the_errno_that_was_asked_for(
    faulty_disk: FaultyDisk, name: str
) -> None:
    process = start(faulty_disk, CHANGES[name])
    faulty_disk.fail(errno.ENOSPC)
    go_on(process)
    assert process.communicate()[0] == f"{errno.ENOSPC}\n"


def test_only_the_kinds_that_are_named_are_struck(faulty_disk: FaultyDisk) -> None:
    process = start(faulty_disk, CHANGES["mkdir"])
    faulty_disk.fail(kinds="ws")
    go_on(process)
    assert process.communicate()[0] == "done\n"


def test_other_folders_are_not_struck(faulty_disk: FaultyDisk, tmp_path: Path) -> None:
    process = start(faulty_disk, f"os.mkdir({str(tmp_path / 'elsewhere')!r})")
    faulty_disk.fail()
    go_on(process)
    assert process.communicate()[0] == "done\n"
