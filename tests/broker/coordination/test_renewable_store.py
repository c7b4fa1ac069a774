"""A store that continues with a new session, without its owner's knowledge."""

from __future__ import annotations

import pytest

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.renewable import RenewableStore
from kstore.broker.coordination.store import (
    NodeExistsError,
    Store,
    StoreClosedError,
    StoreUnavailableError,
    WatchEvent,
)


class Sessions:
    """Gives out sessions on one tree, or fails to."""

    def __init__(self) -> None:
        self.root = MemoryStore()
        self.given: list[Store] = []
        self.fail = False

    def __call__(self) -> Store:
        if self.fail:
            raise StoreUnavailableError("nobody answers")
        self.given.append(self.root.new_session())
        return self.given[-1]


def test_calls_go_to_the_present_session_and_ephemerals_end_with_it() -> None:
    sessions = Sessions()
    store = RenewableStore(sessions)
    first = store.session_id
    store.create("/broker", b"1", ephemeral=True)
    assert not store.over
    sessions.given[0].close()
    assert store.over
    with pytest.raises(StoreClosedError):
        store.get("/broker")
    store.renew()
    assert not store.over
    assert store.session_id != first
    assert not store.exists("/broker")
    store.create("/broker", b"2", ephemeral=True)
    stat = store.stat("/broker")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id
    store.close()
    assert sessions.root.children("/") == []


def test_a_watch_goes_on_and_is_told_once_to_look() -> None:
    sessions = Sessions()
    store = RenewableStore(sessions)
    store.ensure("/ids")
    events: list[WatchEvent] = []
    store.watch("/ids", events.append)
    cancelled = store.watch("/ids", lambda event: pytest.fail(f"{event} after cancel"))
    cancelled.cancel()
    sessions.given[0].close()
    store.renew()
    assert events == [WatchEvent("changed", "/ids")]
    store.create("/ids/1")
    assert events[1:] == [WatchEvent("created", "/ids/1")]


def test_a_renewal_that_fails_changes_nothing() -> None:
    sessions = Sessions()
    store = RenewableStore(sessions)
    store.create("/broker", ephemeral=True)
    sessions.fail = True
    with pytest.raises(StoreUnavailableError):
        store.renew()
    with pytest.raises(NodeExistsError):
        store.create("/broker")
