"""Ports of tests: no two processes are given the same one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.conformance import broker_process
from tests.conformance.broker_process import free_port


def test_a_port_is_locked_for_the_test_runs_of_all_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "_LOCKS", tmp_path / "locks")
    before = os.umask(0o077)
    try:
        port = free_port()
    finally:
        os.umask(before)
    assert (tmp_path / "locks").stat().st_mode & 0o777 == 0o777
    lock = os.open(tmp_path / "locks" / str(port), os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)
