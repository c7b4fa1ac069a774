"""Which fetch sessions are kept: ids, the limits, and who gives way (KIP-227)."""

from __future__ import annotations

from dataclasses import dataclass

from kstore.broker.state.replication.fetch_session_cache import (
    EVICTION_MS,
    MAX_SESSION_PARTITIONS,
    FetchSessionCache,
)


@dataclass
class Session:
    session_id: int
    principal: str = "User:a"
    size: int = 1
    privileged: bool = False
    created_ms: int = 0
    last_used_ms: int = 0


def cache(limit: int, *ids: int) -> FetchSessionCache[Session]:
    return FetchSessionCache(limit, iter(ids).__next__)


def test_ids_in_use_and_ids_that_are_none_are_asked_for_again() -> None:
    sessions = cache(10, 5, 0, -3, 5, 7)
    sessions.add(Session(sessions.reserve("User:a", False, 1, 0)))
    assert sessions.reserve("User:a", False, 1, 0) == 7


def test_without_slots_there_are_no_sessions() -> None:
    assert cache(0).reserve("User:a", False, 1, 0) == 0


def test_a_full_cache_refuses_while_all_are_young() -> None:
    sessions = cache(1, 1)
    sessions.add(Session(sessions.reserve("User:a", False, 1, 0)))
    assert sessions.reserve("User:a", True, 100, EVICTION_MS) == 0


def test_the_longest_unused_session_gives_way_first() -> None:
    sessions = cache(2, 3)
    sessions.add(Session(1, size=9, last_used_ms=100))
    sessions.add(Session(2, size=1, last_used_ms=200))
    assert sessions.reserve("User:a", False, 1, EVICTION_MS + 101) == 3
    assert list(sessions.sessions) == [2]


def test_then_a_smaller_or_unprivileged_one_that_had_its_time() -> None:
    now = EVICTION_MS + 1
    sessions = cache(2, 3, 4)
    sessions.add(Session(1, size=5, privileged=True, last_used_ms=now))
    sessions.add(Session(2, size=7, last_used_ms=now))
    assert sessions.reserve("User:a", False, 7, now) == 0
    assert sessions.reserve("User:a", False, 8, now) == 3
    assert list(sessions.sessions) == [1]
    assert sessions.evictions == 1


def test_removing_twice_is_fine() -> None:
    sessions = cache(1, 1)
    sessions.add(Session(sessions.reserve("User:a", False, 1, 0)))
    sessions.remove(1)
    sessions.remove(1)
    assert sessions.sessions == {}


# ---- principals ----


def full(slots: int, *principals: str) -> FetchSessionCache[Session]:
    """As many sessions as there are slots, the earlier the longer unused."""
    sessions = cache(slots, *range(1, 1000))
    for age, principal in enumerate(principals):
        session_id = sessions.reserve(principal, False, 1, age)
        sessions.add(Session(session_id, principal, created_ms=age, last_used_ms=age))
    assert len(sessions.sessions) == slots
    return sessions


def holders(sessions: FetchSessionCache[Session]) -> str:
    return "".join(sorted(session.principal for session in sessions.sessions.values()))


def test_a_principal_below_its_share_takes_the_longest_unused_one_of_who_has_most() -> None:
    sessions = full(6, *"aaaaab")
    for share in ("aaaabb", "aaabbb"):
        session_id = sessions.reserve("b", False, 1, 10)
        sessions.add(Session(session_id, "b", last_used_ms=10))
        assert holders(sessions) == share
    assert list(sessions.sessions)[:3] == [3, 4, 5], "the longest unused of a went"
    assert sessions.reserve("b", False, 1, 10) == 0, "it has its share"
    assert sessions.reserve("a", False, 1, 10) == 0
    assert sessions.reserve("c", False, 1, 10), "one more: the share of each is two now"


def test_over_its_share_a_principal_displaces_only_its_own_sessions() -> None:
    sessions = full(4, *"aabb")
    now = EVICTION_MS + 3
    for session in sessions.sessions.values():
        session.last_used_ms = now
    sessions.sessions[3].size = sessions.sessions[4].size = 1
    assert sessions.reserve("a", False, 9, now)
    assert holders(sessions) == "abb"


def test_a_follower_takes_from_consumers_that_have_more_than_their_share() -> None:
    sessions = full(4, *"aaaa")
    for held in (3, 2):
        session_id = sessions.reserve("broker", True, 1, 10)
        sessions.add(Session(session_id, "broker", privileged=True, last_used_ms=10))
        assert holders(sessions).count("a") == held
    assert sessions.reserve("broker", True, 1, 10) == 0
    assert sessions.reserve("b", False, 1, 10), "a and b share what followers leave"
    assert [s.principal for s in sessions.sessions.values() if s.privileged] == ["broker"] * 2


def test_a_session_of_too_many_partitions_is_none() -> None:
    sessions = cache(10, 1, 2)
    too_many = MAX_SESSION_PARTITIONS + 1
    assert sessions.reserve("a", False, too_many, 0) == 0
    assert sessions.reserve("broker", True, too_many, 0), "a follower has what its broker has"
    session = Session(sessions.reserve("a", False, 1, 0), "a")
    sessions.add(session)
    session.size = too_many
    assert not sessions.resized(session)
    assert sessions.sessions == {}


def test_principals_share_the_partitions_of_all_sessions_too() -> None:
    sessions = cache(10, *range(1, 9))
    half = sessions.max_partitions // 2
    first = Session(sessions.reserve("a", False, half, 0), "a", half)
    sessions.add(first)
    sessions.add(Session(sessions.reserve("a", False, half, 0), "a", half))
    assert sessions.reserve("a", False, 1, 1) == 0
    assert sessions.reserve("b", False, half + 1, 1) == 0, "more than its share"
    assert sessions.reserve("b", False, 1, 1)
    assert list(sessions.sessions) == [2]


def test_a_session_that_grows_counts_and_one_that_shrinks_makes_room() -> None:
    sessions = cache(10, *range(1, 9))
    session = Session(sessions.reserve("a", False, 1, 0), "a")
    sessions.add(session)
    for size in (MAX_SESSION_PARTITIONS, 5, MAX_SESSION_PARTITIONS):
        session.size = size
        assert sessions.resized(session)
    assert sessions.reserve("a", False, 1, 0) == 0
    session.size = 5
    assert sessions.resized(session)
    assert sessions.reserve("a", False, 1, 0)
