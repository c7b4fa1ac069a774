"""Which fetch sessions are kept: ids, the limit, and who gives way (KIP-227)."""

from __future__ import annotations

from dataclasses import dataclass

from kstore.broker.state.fetch_session import EVICTION_MS, FetchSessionCache


@dataclass
class Session:
    session_id: int
    size: int = 1
    privileged: bool = False
    created_ms: int = 0
    last_used_ms: int = 0


def cache(limit: int, *ids: int) -> FetchSessionCache[Session]:
    return FetchSessionCache(limit, iter(ids).__next__)


def test_ids_in_use_and_ids_that_are_none_are_asked_for_again() -> None:
    sessions = cache(10, 5, 0, -3, 5, 7)
    sessions.add(Session(sessions.reserve(False, 1, 0)))
    assert sessions.reserve(False, 1, 0) == 7


def test_without_slots_there_are_no_sessions() -> None:
    assert cache(0).reserve(False, 1, 0) == 0


def test_a_full_cache_refuses_while_all_are_young() -> None:
    sessions = cache(1, 1)
    sessions.add(Session(sessions.reserve(False, 1, 0)))
    assert sessions.reserve(True, 100, EVICTION_MS) == 0


def test_the_longest_unused_session_gives_way_first() -> None:
    sessions = cache(2, 3)
    sessions.add(Session(1, size=9, last_used_ms=100))
    sessions.add(Session(2, size=1, last_used_ms=200))
    assert sessions.reserve(False, 1, EVICTION_MS + 101) == 3
    assert list(sessions.sessions) == [2]


def test_then_a_smaller_or_unprivileged_one_that_had_its_time() -> None:
    now = EVICTION_MS + 1
    sessions = cache(2, 3, 4)
    sessions.add(Session(1, size=5, privileged=True, last_used_ms=now))
    sessions.add(Session(2, size=7, last_used_ms=now))
    assert sessions.reserve(False, 7, now) == 0
    assert sessions.reserve(False, 8, now) == 3
    assert list(sessions.sessions) == [1]
    assert sessions.evictions == 1


def test_removing_twice_is_fine() -> None:
    sessions = cache(1, 1)
    sessions.add(Session(sessions.reserve(False, 1, 0)))
    sessions.remove(1)
    sessions.remove(1)
    assert sessions.sessions == {}
