"""What the LMDB store adds to the contract: it survives its process, and one process has it at a
time.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.store import StoreError, StoreLockedError, StoreUnavailableError

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


FILES = ("data.mdb", "lock.mdb", "owner")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_its_files_are_for_its_user_alone_whatever_they_were(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        LmdbStore(tmp_path / "store", shared=True).close()
        folder = tmp_path / "store"
        names = [*FILES, "sessions"]
        assert [mode(folder), *(mode(folder / name) for name in names)] == [
            0o700, 0o600, 0o600, 0o600, 0o700
        ]  # fmt: skip
        for name in names:
            (folder / name).chmod(0o777)
        store = LmdbStore(folder, shared=True)
        [session] = (folder / "sessions").iterdir()
        assert [mode(folder / name) for name in names] == [0o600, 0o600, 0o600, 0o700]
        assert mode(session) == 0o600
        store.close()
    finally:
        os.umask(before)


@pytest.mark.parametrize("shared", [False, True])
def test_a_folder_that_others_may_write_is_refused_and_one_that_they_may_read_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shared: bool
) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError, match=rf"mode 0777.* chmod 700 {tmp_path}$"):
        LmdbStore(tmp_path, shared=shared)
    assert list(tmp_path.iterdir()) == [], "nothing was written there"
    tmp_path.chmod(0o755)
    LmdbStore(tmp_path, shared=shared).close()
    [told] = caplog.messages
    assert f"{tmp_path} has mode 0755, so others may look into it: chmod 700 {tmp_path}" in told
    tmp_path.chmod(0o700)
    LmdbStore(tmp_path, shared=shared).close()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("name", [*FILES, "sessions"])
def test_a_symbolic_link_in_it_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "store"
    LmdbStore(folder, shared=True).close()
    victim = tmp_path / "victim"
    (victim.mkdir if name == "sessions" else victim.touch)()
    path = folder / name
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    with pytest.raises(StoreError, match=f"{name} is a symbolic link"):
        LmdbStore(folder, shared=True)
    path.unlink()
    LmdbStore(folder, shared=True).close()
