"""Forked children of a process that writes to a log: they keep nothing of it, in particular not its
lock, and get an error that says so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kstore.log

BEGIN = """
import multiprocessing, os, sys, time
import kstore.log
from kstore.log.errors import LogClosedError
log = kstore.open_log(sys.argv[1])
log.append(b"x")

def rest():
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
FORKS = {
    "os.fork": "if os.fork() == 0:\n    rest()\ntime.sleep(600)",
    "multiprocessing": (
        "multiprocessing.get_context('fork').Process(target=rest).start()\ntime.sleep(600)"
    ),
    "a child's child": (
        "if os.fork() == 0:\n    if os.fork() == 0:\n        rest()\n    os._exit(0)\n"
        "time.sleep(600)"
    ),
}


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_child_keeps_no_lock_of_a_killed_writer(tmp_path: Path, fork: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", BEGIN + fork, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    child = int(writer.stdout.readline())
    try:
        with pytest.raises(kstore.log.LogDirLockedError, match=f"pid {writer.pid} "):
            kstore.open_log(tmp_path)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        with kstore.open_log(tmp_path) as log:
            assert [record.value for record in log.records()] == [b"x"]
            assert log.append(b"y") == 1
    finally:
        os.kill(child, signal.SIGKILL)
        writer.stdout.close()


def test_a_child_is_told_to_open_its_own_and_may_once_the_parent_is_done(tmp_path: Path) -> None:
    code = """
read, write = os.pipe()
tried, tell = os.pipe()
child = os.fork()
if child == 0:
    for use in (lambda: log.append(b"no"), log.log_dir.partitions, lambda: log.log_dir.log("t")):
        try:
            use()
        except LogClosedError as error:
            assert f"process {os.getppid()}" in str(error) and "fork" in str(error), error
        else:
            raise AssertionError("a child used its parent's log")
    log.close()
    try:
        kstore.open_log(sys.argv[1])
    except kstore.log.LogDirLockedError:
        pass
    else:
        raise AssertionError("two writers")
    os.write(tell, b"!")
    os.read(read, 1)
    with kstore.open_log(sys.argv[1]) as own:
        own.append(b"of the child")
    os._exit(7)
log.append(b"y")
os.close(tell)
os.read(tried, 1)
log.close()
os.write(write, b"!")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("7\n", "")
    with kstore.open_log(tmp_path, read_only=True) as log:
        assert [record.value for record in log.records()] == [b"x", b"y", b"of the child"]
