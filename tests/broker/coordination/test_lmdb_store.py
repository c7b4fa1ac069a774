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
from kstore.broker.coordination.store import StoreLockedError

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
