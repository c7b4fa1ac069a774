"""A shared LMDB store of several real processes, some of them killed or stopped."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.coordination import lmdb_files
from kstore.broker.coordination.lmdb_store import CHANGES_KEPT, LmdbStore
from kstore.broker.coordination.peers import PeerWatcher
from kstore.broker.coordination.store import (
    StoreClosedError,
    StoreDamagedError,
    StoreLockedError,
    WatchEvent,
)
from tests.beside.programs import Dialogue
from tests.reference.store_changes import Changes

# It obeys commands on lines, and reports the results.
CHILD = """
import os, signal, sys
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.store import StoreError
timeout_ms, stall_timeout_ms = map(int, sys.argv[2:])
store = LmdbStore(
    sys.argv[1], shared=True, session_timeout_ms=timeout_ms, stall_timeout_ms=stall_timeout_ms
)
store.watch("/told", lambda event: print(event.kind, event.path, flush=True))
print(store.session_id, flush=True)
for line in sys.stdin:
    verb, path = line.split()
    try:
        if verb == "ephemeral":
            store.create(path, ephemeral=True, parents=True)
        elif verb == "create":
            store.create(path, parents=True)
        elif verb == "close":
            store.close()
        elif verb == "unlock":
            store._tree.backend.files.after_fork()
        elif verb == "stand-still":
            with store._tree.backend.write():
                os.kill(os.getpid(), signal.SIGSTOP)
        print("done", flush=True)
    except StoreError as error:
        print(type(error).__name__, flush=True)
"""


class Child(Dialogue):
    """Another process with a session on the same folder."""

    def __init__(self, folder: Path, timeout_ms: int = 60_000, stall_timeout_ms: int = 0) -> None:
        arguments = [str(folder), str(timeout_ms), str(stall_timeout_ms)]
        super().__init__([sys.executable, "-c", CHILD, *arguments])
        self.session_id = int(self.line())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    with ExitStack() as children:
        yield lambda *given: children.enter_context(Child(tmp_path, *given))


def test_a_change_reaches_the_watches_of_other_processes(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    store = LmdbStore(tmp_path, shared=True)
    changes = Changes()
    store.watch("/topics", changes)
    child = start()
    assert child.session_id != store.session_id
    assert child.does("create /topics/orders") == "done"
    changes.wait_for(WatchEvent("created", "/topics/orders"))
    assert store.exists("/topics/orders")
    store.create("/told")
    assert child.line() == "created /told"
    store.close()


def test_a_killed_process_loses_its_ephemeral_nodes_at_once(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=3_600_000)
    changes = Changes()
    store.watch("/ids", changes)
    child = start()
    assert child.does("ephemeral /ids/2") == "done"
    os.kill(child.process.pid, signal.SIGKILL)
    changes.wait_for(WatchEvent("deleted", "/ids/2"))
    assert store.children("/ids") == []
    store.close()


def test_who_sees_that_a_process_is_about_to_end_has_its_nodes_removed(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    """A killed process drops its locks first; to be gone may take it some 40 ms more."""
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=3_600_000)
    changes = Changes()
    store.watch("/ids", changes)
    child = start()
    assert child.does("ephemeral /ids/2") == "done"
    assert child.does("unlock /ids/2") == "done"
    store.owner_has_ended("/ids/2")
    changes.wait_for(WatchEvent("deleted", "/ids/2"))
    store.close()


def test_a_process_that_stands_still_keeps_its_session_for_the_timeout(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=500)
    changes = Changes()
    store.watch("/ids", changes)
    child = start(500)
    assert child.does("ephemeral /ids/2") == "done"
    time.sleep(1.5)  # it is idle, not silent
    assert store.exists("/ids/2")
    os.kill(child.process.pid, signal.SIGSTOP)
    changes.wait_for(WatchEvent("deleted", "/ids/2"))
    os.kill(child.process.pid, signal.SIGCONT)
    assert child.line() == "changed /told"  # its watches must check again
    assert child.does("create /ids/late") == "StoreClosedError"
    assert store.children("/ids") == []
    store.close()


def test_a_process_that_a_signal_has_stopped_is_seen_sooner_where_it_asks_for_that(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    minutes = 600_000
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=minutes, stall_timeout_ms=200)
    changes = Changes()
    store.watch("/ids", changes)
    quick, slow = start(minutes, 200), start(minutes)
    assert quick.does("ephemeral /ids/2") == "done"
    assert slow.does("ephemeral /ids/3") == "done"
    for child in (slow, quick):
        os.kill(child.process.pid, signal.SIGSTOP)
    changes.wait_for(WatchEvent("deleted", "/ids/2"))
    assert store.children("/ids") == ["3"]
    for child in (slow, quick):
        os.kill(child.process.pid, signal.SIGCONT)
    assert quick.line() == "changed /told"
    assert quick.does("create /ids/late") == "StoreClosedError"
    assert slow.does("create /ids/late") == "done"
    store.close()


def test_who_is_not_stopped_is_not_seen_as_stopped_however_long_it_is_silent(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=600_000, stall_timeout_ms=100)
    child, stopped = start(600_000, 100), start(600_000, 100)
    assert child.does("ephemeral /ids/2") == "done"
    assert stopped.does("ephemeral /ids/3") == "done"
    files = store._tree.backend.files  # type: ignore[attr-defined]
    session = store.stat("/ids/2").ephemeral_owner  # type: ignore[union-attr]
    changes = Changes()
    store.watch("/ids", changes)
    files.touched_ns, touched = (
        lambda each: 1 if each == session else touched(each),
        files.touched_ns,
    )
    os.kill(stopped.process.pid, signal.SIGSTOP)
    changes.wait_for(WatchEvent("deleted", "/ids/3"))  # the other was silent for longer meanwhile
    assert not files.is_stopped(session)
    assert store.children("/ids") == ["2"]
    os.kill(stopped.process.pid, signal.SIGCONT)
    store.close()


def test_a_session_that_has_expired_is_known_by_a_look(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, shared=True)
    mine = store.new_session()
    store._tree.note_lost = lambda session_ids: None  # type: ignore[method-assign]
    store._tree.expire(mine.session_id)
    assert not mine.over  # not yet: it was not notified
    assert mine.has_expired()
    assert not store.has_expired()
    mine.close()
    store.close()


def test_a_process_that_stands_still_in_a_transaction_does_not_keep_others_from_writing(
    tmp_path: Path, start: Callable[..., Child], caplog: pytest.LogCaptureFixture
) -> None:
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=500)
    child = start(500)
    assert child.does("ephemeral /ids/2") == "done"
    child.tell("stand-still /")
    os.waitid(os.P_PID, child.process.pid, os.WSTOPPED | os.WNOWAIT)
    store.create("/written")  # waits until it has ended
    assert start(500).does("create /too") == "done"
    assert child.process.wait(30) == -signal.SIGKILL
    assert f"process {child.process.pid} hung" in caplog.text
    store.close()


def test_a_session_has_the_timeout_that_its_process_gave_it(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    store = LmdbStore(tmp_path, shared=True, session_timeout_ms=200)
    patient = start(60_000)
    assert patient.does("ephemeral /ids/2") == "done"
    os.kill(patient.process.pid, signal.SIGSTOP)
    time.sleep(1)  # far longer than the watcher's own
    assert store.exists("/ids/2")
    os.kill(patient.process.pid, signal.SIGCONT)
    assert patient.does("create /ids/late") == "done"
    store.close()


def test_a_dead_owner_is_known_before_its_node_is_gone(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    child = start()
    assert child.does("ephemeral /ids/2") == "done"
    store = LmdbStore(tmp_path, shared=True)
    assert not store.owner_has_ended("/ids/2")
    assert not store.owner_has_ended("/ids")
    assert not store.owner_has_ended("/nothing")
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    assert store.owner_has_ended("/ids/2") or not store.exists("/ids/2")
    store.close()


def test_a_process_that_dies_while_nobody_looks_is_found_dead_at_opening(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    child = start()
    assert child.does("ephemeral /ids/2") == "done"
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    store = LmdbStore(tmp_path, shared=True)
    assert store.children("/ids") == []
    assert os.listdir(tmp_path / "sessions") == [str(store.session_id)]
    store.close()
    assert os.listdir(tmp_path / "sessions") == []


def test_a_closed_session_ends_for_all(tmp_path: Path, start: Callable[..., Child]) -> None:
    store = LmdbStore(tmp_path, shared=True)
    changes = Changes()
    store.watch("/ids", changes)
    child = start()
    assert child.does("ephemeral /ids/2") == "done"
    assert child.does("close /") == "done"
    changes.wait_for(WatchEvent("deleted", "/ids/2"))
    assert not store.over
    store.close()
    assert store.over
    with pytest.raises(StoreClosedError):
        store.get("/ids")


def test_who_missed_too_much_is_told_to_read_anew(tmp_path: Path) -> None:
    writer = LmdbStore(tmp_path, shared=True)
    writer.create("/n")
    changes = Changes()
    watch = writer.watch("/n", changes)
    tree = writer._tree
    with tree.backend.write() as txn:
        for _ in range(CHANGES_KEPT + 2):
            txn.note_changes(txn.next_counter("zxid"), [WatchEvent("changed", "/n")])
    tree.catch_up()
    changes.wait_for(WatchEvent("changed", "/n"))
    assert len(changes.seen) < CHANGES_KEPT
    watch.cancel()
    writer.close()


def test_one_process_may_open_it_twice(tmp_path: Path) -> None:
    first = LmdbStore(tmp_path, shared=True)
    second = LmdbStore(tmp_path, shared=True)
    second.create("/a")
    assert first.exists("/a")
    first.close()
    assert second.exists("/a")
    second.close()
    third = LmdbStore(tmp_path, shared=True)
    assert third.exists("/a")
    third.close()


def test_alone_and_shared_do_not_mix(tmp_path: Path) -> None:
    alone = LmdbStore(tmp_path)
    with pytest.raises(StoreLockedError):
        LmdbStore(tmp_path, shared=True)
    alone.close()
    shared = LmdbStore(tmp_path, shared=True)
    with pytest.raises(StoreLockedError):
        LmdbStore(tmp_path)
    shared.close()


@pytest.mark.slow
def test_killed_writers_leave_a_tree_that_others_use(
    tmp_path: Path, start: Callable[..., Child]
) -> None:
    store = LmdbStore(tmp_path, shared=True)
    for round_number in range(4):
        child = start()
        for number in range(3):
            assert child.does(f"ephemeral /ids/{round_number}-{number}") == "done"
        for number in range(60):  # the kill comes somewhere among these
            child.tell(f"create /kept/{round_number}-{number}")
        time.sleep(0.02 * round_number)
        child.process.kill()
        changes = Changes()
        store.watch("/probe", changes)
        store.create(f"/probe/{round_number}", parents=True)
        changes.wait_for(WatchEvent("created", f"/probe/{round_number}"))
        kept = store.children("/kept") if store.exists("/kept") else []
        of_round = [name for name in kept if name.startswith(f"{round_number}-")]
        expected = {f"{round_number}-{number}" for number in range(len(of_round))}
        assert set(of_round) == expected  # no gap: each was committed before the next
    deadline = time.monotonic() + 30
    while store.children("/ids") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert store.children("/ids") == []
    store.close()


def test_a_session_that_begins_while_its_process_looks_round_is_not_lost() -> None:
    """The list of all was read before it began, and compared with the process's own after that."""
    lost: list[set[int]] = []
    tree: Any = SimpleNamespace(own_sessions=set(), note_lost=lost.append)

    @contextmanager
    def read() -> Iterator[Any]:
        yield SimpleNamespace(sessions=list)
        tree.own_sessions.add(2)

    tree.backend = SimpleNamespace(read=read)
    watcher: Any = PeerWatcher.__new__(PeerWatcher)
    watcher._tree, watcher._processes = tree, {}
    watcher._look_at_sessions(set())
    assert lost == [set()]


def test_a_store_that_is_closed_does_not_sleep_until_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LmdbStore(tmp_path / "store", shared=True, session_timeout_ms=3_600_000)
    write = os.write

    def write_and_pause(descriptor: int, data: bytes) -> int:
        written = write(descriptor, data)
        time.sleep(0.5)  # the thread that is woken checks meanwhile
        return written

    monkeypatch.setattr("kstore.broker.coordination.peers.os.write", write_and_pause)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@contextmanager
def half_made(folder: Path) -> Iterator[None]:
    """A store that another process is creating: it has the lock file, and no data yet."""
    folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (folder / "lock.mdb").touch()
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_store_that_another_process_creates_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(half_made(tmp_path / "store"))

        def sleep(_: float) -> None:
            (tmp_path / "store" / "lock.mdb").unlink()
            waits.set()
            stack.close()

        times = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
        monkeypatch.setattr(lmdb_files, "time", times)
        with closing(LmdbStore(str(tmp_path / "store"), shared=True)) as store:
            assert waits.is_set()
            store.create("/a")


def test_a_process_that_never_finishes_opening_the_store_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_files, "OPENING_S", 0.0)
    with (
        half_made(tmp_path / "store"),
        pytest.raises(StoreLockedError, match="another process has been opening"),
    ):
        LmdbStore(str(tmp_path / "store"), shared=True)


def test_files_that_no_process_creates_are_damage(tmp_path: Path) -> None:
    with half_made(tmp_path / "store"):
        pass
    with pytest.raises(StoreDamagedError, match=r"data\.mdb is missing beside lock\.mdb"):
        LmdbStore(str(tmp_path / "store"), shared=True)
