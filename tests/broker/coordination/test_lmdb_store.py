"""What the LMDB store adds to the contract: it survives its process, and one process has it at a
time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.store import StoreLockedError, StoreUnavailableError

CHILD = """
import sys
from kstore.broker.coordination.lmdb_store import LmdbStore
store = LmdbStore(sys.argv[1])
store.create("/ids/1", b"alive", ephemeral=True, parents=True)
store.create("/topics/orders", b"kept", parents=True)
store.create("/topics/n-", sequential=True)
print(store.session_id, store.stat("/topics/orders").czxid, flush=True)
sys.stdin.read()
"""


def test_after_kill_9_acknowledged_nodes_are_there_and_ephemeral_ones_are_not(
    tmp_path: Path,
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    session_id, czxid = map(int, child.stdout.readline().split())
    with pytest.raises(StoreLockedError, match=str(child.pid)):
        LmdbStore(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()

    store = LmdbStore(tmp_path)
    assert store.get("/topics/orders") == (b"kept", 0)
    assert store.children("/ids") == []
    assert store.session_id > session_id
    assert store.create("/topics/n-", sequential=True) == "/topics/n-0000000002"
    store.create("/later")
    later = store.stat("/later")
    assert later is not None
    assert later.czxid > czxid
    store.close()


def test_a_closed_store_can_be_opened_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    with pytest.raises(StoreLockedError):
        LmdbStore(tmp_path)
    session = store.new_session()
    store.close()
    session.create("/a")  # the tree is open as long as one session is
    session.close()
    again = LmdbStore(tmp_path)
    assert again.exists("/a")
    again.close()


def test_a_store_that_can_not_grow_says_so_and_goes_on_when_it_can(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.create("/small", b"1")
    environment = store._tree.backend._env  # type: ignore[attr-defined]
    environment.set_mapsize(200_000)
    with pytest.raises(StoreUnavailableError, match=r"can't be used: .*MDB_MAP_FULL"):
        store.create("/large", b"x" * 1_000_000)
    assert not store.exists("/large")
    environment.set_mapsize(10_000_000)
    store.create("/large", b"x" * 1_000_000)
    assert store.get("/small") == (b"1", 0)
    store.close()


def test_nobody_else_reads_a_store(tmp_path: Path) -> None:
    """Credentials are in it."""
    LmdbStore(str(tmp_path / "store")).close()
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0
