"""What the ZooKeeper store adds to the contract: real servers that disappear, or end a session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from kstore.broker.coordination.store import (
    NoNodeError,
    Store,
    StoreClosedError,
    StoreUnavailableError,
    WatchEvent,
)
from kstore.broker.coordination.zookeeper_store import ZooKeeperStore
from tests.conformance.broker_process import free_port
from tests.conformance.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer
from tests.reference.store_changes import Changes

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("zookeeper_jars")]

CHILD = """
import sys
from kstore.broker.coordination.zookeeper_store import ZooKeeperStore
from kstore.broker.coordination.store import StoreError
store = ZooKeeperStore(sys.argv[1], session_timeout_ms=4000)
store.create("/ids/2", ephemeral=True, parents=True)
store.watch("/nothing", lambda event: print(event.kind, event.path, flush=True))
print("ready", flush=True)
sys.stdin.readline()
try:
    store.get("/ids")
    print("alive", flush=True)
except StoreError as error:
    print(type(error).__name__, flush=True)
"""


def test_a_restarted_server_finds_session_nodes_and_watches_again(
    zookeeper_server: ZooKeeperServer,
) -> None:
    store = ZooKeeperStore(f"{zookeeper_server.bootstrap}/a/chroot", session_timeout_ms=60_000)
    changes = Changes()
    store.watch("/topics", changes)
    store.create("/mine", ephemeral=True)
    zookeeper_server.kill()
    zookeeper_server.start()
    changes.wait_for(WatchEvent("changed", "/topics"))  # one may have been missed: check
    store.create("/topics/orders", parents=True)
    changes.wait_for(WatchEvent("created", "/topics/orders"))
    stat = store.stat("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id
    outside = ZooKeeperStore(zookeeper_server.bootstrap)
    assert outside.children("/a/chroot") == ["mine", "topics"]
    assert outside.children("/") == ["a"]
    outside.close()
    store.close()


def test_who_hears_no_server_doubts_its_session_and_goes_on_with_it_when_one_is_back(
    zookeeper_server: ZooKeeperServer,
) -> None:
    store = ZooKeeperStore(f"{zookeeper_server.bootstrap}/a", session_timeout_ms=6000)
    store.create("/mine", ephemeral=True)
    changes = Changes()
    store.watch("/topics", changes)
    told: list[tuple[bool, bool]] = []
    doubt, back = Event(), Event()

    def contact() -> None:
        told.append((store.away, store.in_doubt))
        (doubt if store.in_doubt else back).set()

    store.on_contact(contact)
    zookeeper_server.kill()
    assert doubt.wait(60)
    assert told == [(True, False), (True, True)]
    assert not store.over
    with pytest.raises(StoreUnavailableError, match="nothing was asked"):
        store.children("/")
    with pytest.raises(StoreUnavailableError, match="nothing was asked"):
        store.create("/topics")
    back.clear()
    zookeeper_server.start()
    changes.wait_for(WatchEvent("changed", "/topics"))  # one may have been missed: check
    assert back.wait(60)
    assert told[-1] == (False, False)
    stat = store.stat("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id
    store.close()


def test_a_session_that_the_ensemble_ended_is_over_for_its_process(
    zookeeper_server: ZooKeeperServer,
) -> None:
    store = ZooKeeperStore(zookeeper_server.bootstrap)
    changes = Changes()
    store.watch("/ids", changes)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, zookeeper_server.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        changes.wait_for(WatchEvent("deleted", "/ids/2"))
        os.kill(child.pid, signal.SIGCONT)
        assert child.stdout.readline() == "changed /nothing\n"  # its watches must check again
        assert child.communicate("go on\n")[0] == "StoreClosedError\n"
    finally:
        child.kill()
        child.wait()
    store.close()


def test_an_ensemble_that_loses_its_leader_goes_on(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        store: Store = ZooKeeperStore(f"{ensemble.connect}/kstore", session_timeout_ms=60_000)
        changes = Changes()
        store.watch("/epoch", changes)
        store.create("/epoch", b"0")
        store.create("/mine", ephemeral=True)
        leader = ensemble.leader()
        leader.kill()
        ensemble.leader()
        version = 0
        while version < 5:
            try:
                version = store.set("/epoch", b"%d" % (version + 1), version)
            except StoreUnavailableError:  # whether it was done is not known: read again
                version = _version(store, "/epoch")
        assert _version(store, "/epoch") == 5
        changes.wait_for(WatchEvent("changed", "/epoch"))
        assert store.exists("/mine")
        leader.start()
        other = ZooKeeperStore(f"{leader.bootstrap}/kstore", connection_timeout_ms=60_000)
        assert other.get("/epoch") == (b"5", 5)
        store.close()
        with pytest.raises(NoNodeError):
            other.get("/mine")
        other.close()


def _version(store: Store, path: str) -> int:
    """A node's, as soon as there is a server to ask."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return store.get(path)[1]
        except StoreUnavailableError:
            assert time.monotonic() < deadline


def test_nobody_there_is_said_with_the_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailableError, match=address):
        ZooKeeperStore(address, connection_timeout_ms=300)


def test_a_server_that_went_away_is_told_and_a_closed_store_stays_closed(
    zookeeper_server: ZooKeeperServer,
) -> None:
    store = ZooKeeperStore(zookeeper_server.bootstrap, session_timeout_ms=1000)
    zookeeper_server.kill()
    with pytest.raises((StoreUnavailableError, StoreClosedError)):
        store.get("/")
    with pytest.raises((StoreUnavailableError, StoreClosedError)):
        store.create("/a")
    store.close()
    with pytest.raises(StoreClosedError):
        store.get("/")
