"""The coordination store's contract, run on every implementation."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import (
    BadPathError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    Set,
    Store,
    StoreClosedError,
    StoreError,
    WatchEvent,
)
from tests.conformance.zookeeper_server import ZooKeeperServer

IMPLEMENTATIONS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda path: MemoryStore(),
    "lmdb": lambda path: LmdbStore(path / "store"),
    "shared lmdb": lambda path: LmdbStore(path / "store", shared=True),
}


ZOOKEEPER = pytest.param("zookeeper", marks=[pytest.mark.java, pytest.mark.slow])


@pytest.fixture(scope="session")
def zookeeper(zookeeper_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real ZooKeeper's address, for all these tests."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.bootstrap


@pytest.fixture(params=[*sorted(IMPLEMENTATIONS), ZOOKEEPER])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "zookeeper":
        from kstore.broker.coordination.zookeeper_store import ZooKeeperStore

        address = request.getfixturevalue("zookeeper")
        opened: Store = ZooKeeperStore(f"{address}/test-{uuid.uuid4()}")
    else:
        opened = IMPLEMENTATIONS[request.param](tmp_path)
    yield opened
    opened.close()


def told_everything(store: Store) -> None:
    """Return when all earlier changes were reported: events arrive in order, on any thread."""
    reached = threading.Event()
    barrier = store.watch("/barrier", lambda event: reached.set())
    store.create("/barrier")
    assert reached.wait(30)
    barrier.cancel()
    store.delete("/barrier")


def test_a_created_node_is_read_back_at_version_0(store: Store) -> None:
    assert store.create("/cluster", b"x") == "/cluster"
    assert store.get("/cluster") == (b"x", 0)


def test_a_create_needs_the_parent_and_a_free_name(store: Store) -> None:
    with pytest.raises(NoNodeError):
        store.create("/a/b")
    store.create("/a")
    store.create("/a/b")
    with pytest.raises(NodeExistsError):
        store.create("/a/b")


def test_create_with_parents_makes_what_is_missing(store: Store) -> None:
    store.create("/brokers/topics/orders", b"{}", parents=True)
    store.create("/brokers/topics/more", b"{}", parents=True)
    assert store.get("/brokers") == (b"", 0)
    assert store.children("/brokers/topics") == ["more", "orders"]


def test_a_set_counts_the_version_and_may_demand_one(store: Store) -> None:
    store.create("/a", b"0")
    assert store.set("/a", b"1") == 1
    assert store.set("/a", b"2", version=1) == 2
    with pytest.raises(BadVersionError):
        store.set("/a", b"3", version=1)
    assert store.get("/a") == (b"2", 2)


def test_a_delete_may_demand_a_version_and_never_takes_children_along(store: Store) -> None:
    store.create("/a/b", parents=True)
    with pytest.raises(NotEmptyError):
        store.delete("/a")
    with pytest.raises(BadVersionError):
        store.delete("/a/b", version=1)
    store.delete("/a/b", version=0)
    store.delete("/a")
    assert not store.exists("/a")


def test_what_does_not_exist_is_said_so(store: Store) -> None:
    for call in (store.get, store.children, store.delete, lambda path: store.set(path, b"")):
        with pytest.raises(NoNodeError):
            call("/nothing")
    assert store.stat("/nothing") is None


def test_many_nodes_are_read_at_once_with_what_is_known_of_them(store: Store) -> None:
    store.create("/a", b"1")
    store.create("/b", b"2")
    store.set("/b", b"3")
    first, missing, second = store.read_many(["/a", "/missing", "/b"])
    assert first == (b"1", store.stat("/a"))
    assert missing is None
    assert second == (b"3", store.stat("/b"))
    assert store.read_many([]) == []


def test_the_root_is_there_from_the_start_and_stays(store: Store) -> None:
    assert store.exists("/")
    assert store.children("/") == []
    with pytest.raises(BadPathError):
        store.delete("/")
    with pytest.raises(NodeExistsError):
        store.create("/")


def test_children_are_one_level_only_and_names_that_share_a_prefix_do_not_mix(store: Store) -> None:
    for path in ("/a/b/c", "/ab/d", "/a/b-c", "/a/bé"):
        store.create(path, parents=True)
    assert store.children("/") == ["a", "ab"]
    assert store.children("/a") == ["b", "b-c", "bé"]
    assert store.children("/a/b") == ["c"]


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/./a", "/..", "/a\x00", "/" + "a" * 600])
def test_a_path_has_one_form(store: Store, path: str) -> None:
    with pytest.raises(BadPathError):
        store.create(path)
    with pytest.raises(BadPathError):
        store.get(path)


def test_transaction_ids_grow_over_the_whole_tree(store: Store) -> None:
    store.create("/a")
    store.create("/b")
    a, b = store.stat("/a"), store.stat("/b")
    assert a is not None
    assert b is not None
    assert 0 < a.czxid == a.mzxid < b.czxid
    store.set("/a", b"1")
    changed = store.stat("/a")
    assert changed is not None
    assert changed.czxid == a.czxid
    assert changed.mzxid > b.mzxid


def test_sequential_names_grow_and_are_never_reused(store: Store) -> None:
    store.create("/locks")
    first = store.create("/locks/n-", sequential=True)
    second = store.create("/locks/n-", sequential=True)
    store.delete(second)
    third = store.create("/locks/n-", sequential=True)
    assert first < second < third
    assert all(len(path) == len("/locks/n-") + 10 for path in (first, second, third))


def test_a_multi_is_all_or_nothing_and_names_the_failing_operation(store: Store) -> None:
    store.create("/epoch", b"5")
    assert store.multi(
        [Check("/epoch", 0), Create("/t"), Create("/t/0", b"x"), Set("/t", b"y"), Delete("/t/0")]
    ) == [None, "/t", "/t/0", 1, None]
    with pytest.raises(BadVersionError) as failure:
        store.multi([Create("/u"), Set("/t", b"z"), Delete("/epoch"), Check("/t", 1)])
    assert failure.value.op_index == 3
    assert not store.exists("/u")
    assert store.get("/t") == (b"y", 1)
    assert store.get("/epoch") == (b"5", 0)


def test_a_deposed_controller_can_not_write(store: Store) -> None:
    store.create("/controller_epoch", b"1")
    _, seen = store.get("/controller_epoch")
    with_other = store.new_session()
    with_other.set("/controller_epoch", b"2", seen)
    with pytest.raises(BadVersionError):
        store.multi([Check("/controller_epoch", seen), Create("/decision")])
    with_other.close()
    assert not store.exists("/decision")


def test_ephemeral_nodes_end_with_their_session(store: Store) -> None:
    store.create("/ids")
    other = store.new_session()
    assert other.session_id != store.session_id
    other.create("/ids/1", b"here", ephemeral=True)
    other.create("/ids/kept", b"stays")
    stat = store.stat("/ids/1")
    assert stat is not None
    assert stat.ephemeral_owner == other.session_id
    with pytest.raises(EphemeralParentError):
        other.create("/ids/1/x")
    other.close()
    other.close()
    assert store.children("/ids") == ["kept"]
    with pytest.raises(StoreClosedError):
        other.get("/ids")


def test_a_watch_tells_every_change_at_and_below_its_path_in_order(store: Store) -> None:
    seen: list[WatchEvent] = []
    watch = store.watch("/a", seen.append)
    other = store.new_session()
    other.multi([Create("/a"), Create("/ab"), Create("/a/b"), Set("/a/b", b"1")])
    other.create("/a/mine", ephemeral=True)
    other.close()
    store.delete("/a/b")
    told_everything(store)
    assert seen == [
        WatchEvent("created", "/a"),
        WatchEvent("created", "/a/b"),
        WatchEvent("changed", "/a/b"),
        WatchEvent("created", "/a/mine"),
        WatchEvent("deleted", "/a/mine"),
        WatchEvent("deleted", "/a/b"),
    ]
    watch.cancel()
    watch.cancel()
    store.delete("/a")
    told_everything(store)
    assert len(seen) == 6


def test_a_failed_transaction_tells_nothing(store: Store) -> None:
    seen: list[WatchEvent] = []
    store.watch("/a", seen.append)
    with pytest.raises(StoreError):
        store.multi([Create("/a"), Delete("/nothing")])
    told_everything(store)
    assert seen == []


def test_a_callback_may_use_the_store_and_cancel(store: Store) -> None:
    seen: list[str] = []
    cancelled = threading.Event()

    def note(event: WatchEvent) -> None:
        seen.append(f"{event.kind} {event.path} {store.exists(event.path)}")
        if event.path == "/a":
            store.create("/b")
        else:
            watch.cancel()
            cancelled.set()

    watch = store.watch("/", note)
    store.create("/a")
    assert cancelled.wait(30)
    store.create("/c")
    told_everything(store)
    assert seen == ["created /a True", "created /b True"]


def test_concurrent_versioned_writers_lose_no_update(store: Store) -> None:
    store.create("/count", b"0")

    def add_ten() -> None:
        session = store.new_session()
        done = 0
        while done < 10:
            data, version = session.get("/count")
            try:
                session.set("/count", b"%d" % (int(data) + 1), version)
            except BadVersionError:
                continue
            done += 1
        session.close()

    threads = [threading.Thread(target=add_ten) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("/count") == (b"30", 30)


PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/z"]
VERSIONS = st.integers(-1, 2)
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=3), st.booleans()),
    st.builds(Set, st.sampled_from(PATHS), st.binary(max_size=3), VERSIONS),
    st.builds(Delete, st.sampled_from(PATHS), VERSIONS),
    st.builds(Check, st.sampled_from(PATHS), VERSIONS),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=12))
def test_the_implementations_agree_on_any_history(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Op]]
) -> None:
    memory = MemoryStore()
    lmdb = LmdbStore(tmp_path_factory.mktemp("store"))
    for ops in history:
        outcomes: list[object] = []
        for store in (memory, lmdb):
            try:
                outcomes.append(store.multi(ops))
            except StoreError as error:
                outcomes.append((type(error), error.op_index))
        assert outcomes[0] == outcomes[1]
        assert _dump(memory, "/") == _dump(lmdb, "/")
    memory.close()
    lmdb.close()


def _dump(store: Store, path: str) -> list[object]:
    stat = store.stat(path)
    found: list[object] = [(path, store.get(path), stat.ephemeral_owner != 0)]
    for name in store.children(path):
        found += _dump(store, path.rstrip("/") + "/" + name)
    return found
