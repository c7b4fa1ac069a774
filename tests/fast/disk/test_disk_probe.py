"""The probe of a disk, in separate processes whose disk a library blocks: it checks while data is
written, reports how long a check has taken, and leaves nothing behind.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kstore._fast.disk.disk_probe import DiskProbe
from tests.faults.disks import FaultyDisk, faulty_disk

__all__ = ["faulty_disk"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="O_TMPFILE is Linux's"),
    pytest.mark.timeout(60),
]

BEGIN = """
import os, sys, threading, time
from kstore._fast.disk.disk_probe import DiskProbe
from kstore._fast.log.dir_calm import DirCalm

folder, control = sys.argv[1:]

def until(condition):
    while not condition():
        time.sleep(0.002)

def block(kinds):
    open(control, "w").write(f"0 {kinds}")

def threads():
    return len(os.listdir("/proc/self/task"))

def descriptors():
    links = ["/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")]
    return sum(os.path.islink(link) and os.readlink(link).startswith(folder) for link in links)

probe = DiskProbe(folder)
probe.interval_ms = 5
"""


def run(disk: FaultyDisk, script: str) -> None:
    """Run it with a probe of the disk."""
    control = disk.environment["DISK_FAULTS_CONTROL"]
    subprocess.run(
        [sys.executable, "-c", BEGIN + script, disk.folder, control],
        check=True, env=os.environ | dict(disk.environment), timeout=50,
    )  # fmt: skip


def test_it_asks_while_somebody_writes_and_sleeps_where_nobody_does(
    faulty_disk: FaultyDisk,
) -> None:
    run(
        faulty_disk,
        """
assert probe.resting and threads() == 1, "nobody writes: not even a thread"
probe.use()
until(lambda: probe.answers > 3)
assert (probe.error, probe.overdue_ms) == (0, 0)
until(lambda: probe.resting)
answers = probe.answers
time.sleep(0.1)
assert probe.answers == answers
probe.use()
until(lambda: probe.answers > answers)
""",
    )


def test_an_answer_that_is_owed_makes_the_dir_not_calm_until_it_comes(
    faulty_disk: FaultyDisk,
) -> None:
    run(
        faulty_disk,
        """
calm = DirCalm()
calm.watch_disk(probe)
until(lambda: calm.calm and probe.answers > 1)
block("p")
until(lambda: not calm.calm)
waited = probe.overdue_ms
assert waited > 5
until(lambda: probe.overdue_ms > waited)
answers = probe.answers
assert not calm.calm
os.unlink(control)
until(lambda: probe.answers > answers)
until(lambda: calm.calm)
""",
    )


def test_after_a_pause_the_dir_is_not_calm_before_the_disk_has_answered(
    faulty_disk: FaultyDisk,
) -> None:
    run(
        faulty_disk,
        """
calm = DirCalm()
calm.watch_disk(probe)
probe.interval_ms = 60_000
block("p")
assert not calm.calm, "it has not answered yet"
os.unlink(control)
until(lambda: calm.calm)
probe.interval_ms = 5
until(lambda: probe.resting)
block("p")
answers = probe.answers
probe.interval_ms = 60_000
assert not calm.calm
time.sleep(0.05)
assert (calm.calm, probe.overdue_ms, probe.answers) == (False, 0, answers)
os.unlink(control)
until(lambda: calm.calm)
probe.interval_ms = 0
assert calm.calm, "nothing is asked"
""",
    )


def test_its_file_has_no_name_and_is_gone_with_it(faulty_disk: FaultyDisk) -> None:
    run(
        faulty_disk,
        """
probe.use()
until(lambda: probe.answers > 1)
assert (os.listdir(folder), descriptors()) == ([], 1)
probe.close()
until(lambda: threads() == 1)
assert descriptors() == 0
probe.use()
assert threads() == 1, "it is closed"
""",
    )


def test_what_hangs_holds_nobody_who_closes(faulty_disk: FaultyDisk) -> None:
    run(
        faulty_disk,
        """
probe.use()
until(lambda: probe.answers > 1)
block("p")
until(lambda: probe.overdue_ms)
probe.close()
del probe
assert threads() == 2
os.unlink(control)
until(lambda: threads() == 1)
""",
    )


def test_a_refused_write_is_an_answer(faulty_disk: FaultyDisk) -> None:
    run(
        faulty_disk,
        """
open(control, "w").write("28 p")
probe.use()
until(lambda: probe.answers)
assert (probe.error, probe.overdue_ms) == (28, 0)
os.unlink(control)
until(lambda: not probe.error)
""",
    )


def test_a_folder_that_takes_no_file_is_an_answer() -> None:
    probe = DiskProbe("/proc/self")
    probe.interval_ms = 1
    while not probe.answers:
        probe.use()
    assert probe.error
    assert not probe.overdue_ms
    probe.close()


def test_switched_off_it_asks_nothing(faulty_disk: FaultyDisk) -> None:
    run(
        faulty_disk,
        """
probe.interval_ms = 0
probe.use()
assert not probe.resting and threads() == 1
probe.interval_ms = 5
probe.use()
until(lambda: probe.answers)
probe.interval_ms = 0
until(lambda: probe.resting)
""",
    )
