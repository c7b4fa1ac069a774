"""What the LMDB store adds to the contract: it outlives its process, and has one at a time."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.store import (
    Create,
    Delete,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreUnavailableError,
)
from tests.beside.small_disks import fill, small_disk

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
    for each in folder.glob("*.mdb*"):  # without its data a store is not created again
        each.unlink()
    LmdbStore(folder, shared=True).close()


# -- damage: it is reported, and nothing is invented, because the store is the only truth


def filled(path: Path) -> Path:
    """A closed store of some pages; its file."""
    store = LmdbStore(path)
    for number in range(60):
        store.create(f"/topics/t{number}", b"x" * 300, parents=True)
    store.close()
    return path / "data.mdb"


def test_damaged_pages_are_told_before_they_can_end_the_process(tmp_path: Path) -> None:
    file = filled(tmp_path)
    whole = file.read_bytes()
    pages = len(whole) // 4096
    assert pages >= 8
    told = 0
    for at in range(0, len(whole), 4096):
        file.write_bytes(whole[:at] + bytes(range(24)) + whole[at + 24 :])
        try:
            LmdbStore(tmp_path).close()
        except StoreDamagedError as error:
            assert "restore a copy" in str(error)  # noqa: PT017 (some pages are free)
            told += 1
    assert told > pages // 2


@pytest.mark.parametrize("size", [0, 100, 4096, 8192, 5 * 4096])
def test_a_store_that_was_cut_is_not_begun_anew(tmp_path: Path, size: int) -> None:
    file = filled(tmp_path)
    os.truncate(file, size)
    with pytest.raises(StoreDamagedError, match="is damaged"):
        LmdbStore(tmp_path)
    assert file.stat().st_size == size


def test_a_store_without_its_file_is_not_begun_anew(tmp_path: Path) -> None:
    filled(tmp_path).unlink()
    with pytest.raises(StoreDamagedError, match=r"data\.mdb is missing beside lock\.mdb"):
        LmdbStore(tmp_path)


def test_the_copy_of_the_last_stop_can_be_put_back(tmp_path: Path) -> None:
    file = filled(tmp_path)
    copy = tmp_path / "data.mdb.backup"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    file.write_bytes(b"damaged")
    with pytest.raises(StoreDamagedError):
        LmdbStore(tmp_path)
    file.write_bytes(copy.read_bytes())
    (tmp_path / "lock.mdb").unlink()
    store = LmdbStore(tmp_path)
    assert len(store.children("/topics")) == 60
    store.close()


def test_the_copy_is_made_at_the_start_after_a_kill(tmp_path: Path) -> None:
    file = filled(tmp_path)
    copy = tmp_path / "data.mdb.backup"
    of_the_stop = copy.stat().st_ino
    LmdbStore(tmp_path)._tree.backend._env.close()  # type: ignore[attr-defined]
    assert copy.stat().st_ino == of_the_stop
    (tmp_path / "killed").mkdir()
    shutil.copy(file, tmp_path / "killed")
    LmdbStore(tmp_path / "killed")
    assert (tmp_path / "killed" / "data.mdb.backup").exists()


def test_a_copy_that_can_not_be_written_does_not_stop_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"data.mdb.backup.{os.getpid()}").mkdir()
    store = LmdbStore(tmp_path)
    store.create("/a")
    store.close()
    assert "data.mdb.backup can't be written" in caplog.text


def test_damage_met_while_it_runs_says_what_to_do(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    backend: Any = store._tree.backend
    with pytest.raises(StoreUnavailableError, match="restore a copy"), backend._store_errors():
        raise lmdb.CorruptedError("by a test")
    store.close()


def change_node(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change what is stored under the node /topics/t7, without any check."""
    env = lmdb.open(str(path))
    with env.begin(write=True) as transaction:
        key = b"\0\2/topics/t7"
        transaction.put(key, change(transaction.get(key)))
    env.close()


def test_a_damaged_node_is_told_and_not_returned(tmp_path: Path) -> None:
    filled(tmp_path)
    change_node(tmp_path, lambda value: value[:-1] + b"y")
    store = LmdbStore(tmp_path)
    assert store.get("/topics/t6") == (b"x" * 300, 0)
    with pytest.raises(StoreDamagedError, match="node /topics/t7 of the coordination store is"):
        store.get("/topics/t7")
    store.close()


def test_a_node_that_a_version_without_checksums_wrote_since_is_no_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    mzxid = 9  # where it lies in the value, 8 bytes
    change_node(tmp_path, lambda v: v[:mzxid] + b"\1" * 8 + v[mzxid + 8 : -1] + b"y")
    store = LmdbStore(tmp_path)
    assert store.get("/topics/t7") == (b"x" * 299 + b"y", 0)
    store.close()


FORKED = """
import os, sys, time
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.store import StoreClosedError
store = LmdbStore(sys.argv[1], shared=sys.argv[2] == "shared")
store.create("/ids", b"")
store.create("/ids/1", b"alive", ephemeral=True)
if os.fork() == 0:
    try:
        store.get("/ids/1")
    except StoreClosedError:
        print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["alone", "shared"])
def test_a_forked_child_keeps_no_lock_and_no_session_of_a_killed_process(
    tmp_path: Path, kind: str
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKED, str(tmp_path), kind], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        store = LmdbStore(tmp_path, shared=kind == "shared")
        assert store.children("/ids") == [], "its ephemeral nodes went with it"
        store.close()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_many_nodes_can_be_deleted_at_once_on_a_full_disk(tmp_path: Path) -> None:
    """In a transaction that writes nearly every page again."""
    names = [f"/topics/{number}" for number in range(6000)]
    with small_disk(tmp_path / "disk", "32m") as folder:
        store = LmdbStore(folder / "store")
        store.create("/topics")
        for first in range(0, len(names), 500):
            store.multi([Create(name, bytes(300)) for name in names[first : first + 500]])
        fill(folder)
        store.multi([Delete(name) for name in names[::2]])
        assert len(store.children("/topics")) == 3000
        store.multi([Delete(name) for name in names[1::2]])
        store.close()
        assert LmdbStore(folder / "store").children("/topics") == []
