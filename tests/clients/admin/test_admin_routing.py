"""Requests item by item: which broker is asked, what is retried, and the final result of an item.
The cluster is a double that answers from a script, and the loop has its own time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.admin.routing import (
    AdminBase,
    Broker,
    Controller,
    Coordinator,
    Leader,
    Results,
    item_error,
)
from kstore.clients.core.metadata import Broker as BrokerView
from kstore.clients.core.metadata import ClusterView
from kstore.clients.io.cluster import ANY, GROUP
from kstore.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    GroupIdNotFoundError,
    KafkaError,
    NetworkError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kstore.protocol.metadata.describe_cluster import DescribeClusterRequest
from tests.plain_messages import Answer

T = TypeVar("T")
ROUNDS = 5


class FakeCluster:
    """As much of ClusterClient as routes use. It allows ROUNDS attempts, without pauses."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.view.brokers = {n: BrokerView(n, "b", n) for n in (1, 2, 3)}
        self.view.controller_id = 1
        self.refreshed: list[Any] = []
        self.coordinators = {"a": 1, "b": 2}
        self.forgotten: list[str] = []
        self.doubted = 0

    def doubt(self) -> None:
        self.doubted += 1

    def elsewhere(self) -> None:
        """One of its brokers is as good as another."""

    async def refresh(self, topics: Iterable[str] | None) -> None:
        self.refreshed.append(None if topics is None else sorted(topics))

    async def coordinator(self, kind: int, key: str) -> int:
        assert kind == GROUP
        return self.coordinators[key]

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.forgotten.append(key)

    async def retrying(self, action: Callable[[], Awaitable[T]], timeout_ms: float) -> T:
        last: KafkaError | None = None
        for _ in range(ROUNDS):
            try:
                return await action()
            except KafkaError as error:
                if not error.retriable:
                    raise
                last = error
        assert last is not None
        raise last


class Asker:
    """Answers by script: the n-th answer for an item, the last one again and again."""

    def __init__(self, script: Mapping[Any, list[Any]]) -> None:
        self.script = {item: list(answers) for item, answers in script.items()}
        self.asked: list[tuple[int, tuple[Any, ...]]] = []

    async def __call__(self, node_id: int, items: list[Any]) -> dict[Any, Any]:
        """The answers; one that is a lost connection is raised for the whole request."""
        self.asked.append((node_id, tuple(items)))
        found = {}
        for item in items:
            answers = self.script[item]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, NetworkError | RequestTimedOutError):
                raise answer
            if answer is not ...:
                found[item] = answer
        return found


def ask(
    cluster: FakeCluster, route: Any, script: Mapping[Any, list[Any]], *, raise_errors: bool = False
) -> tuple[Results[Any, Any], Asker]:
    """Run one request for all items of the script."""
    settings = {"default.api.timeout.ms": 1000, "request.timeout.ms": 1000}
    base = AdminBase(cluster, settings)  # type: ignore[arg-type]
    asker = Asker(script)
    results = asyncio.run(base._each(script, route, asker, raise_errors=raise_errors))
    return results, asker


def test_each_item_has_its_result_or_its_error() -> None:
    cluster = FakeCluster()
    error = TopicAlreadyExistsError()
    results, asker = ask(cluster, Controller(cluster), {"a": [1], "b": [error], "c": [None]})  # type: ignore[arg-type]
    assert results == {"a": 1, "c": None}
    assert results.errors == {"b": error}
    assert asker.asked == [(1, ("a", "b", "c"))]
    with pytest.raises(TopicAlreadyExistsError):
        ask(cluster, Controller(cluster), {"a": [1], "b": [error]}, raise_errors=True)  # type: ignore[arg-type]


def test_only_what_may_be_tried_again_is_asked_for_again() -> None:
    cluster = FakeCluster()
    script = {"a": [1], "b": [NotControllerError(), 2], "c": [GroupIdNotFoundError()]}
    results, asker = ask(cluster, Controller(cluster), script)  # type: ignore[arg-type]
    assert results == {"a": 1, "b": 2}
    assert asker.asked == [(1, ("a", "b", "c")), (1, ("b",))]
    assert cluster.refreshed == [[]]


@pytest.mark.parametrize("lost", [NetworkError("gone"), RequestTimedOutError("late")])
def test_a_lost_connection_is_tried_again_for_all_of_its_items(lost: KafkaError) -> None:
    cluster = FakeCluster()
    route = Coordinator(cluster, GROUP)  # type: ignore[arg-type]
    results, asker = ask(cluster, route, {"a": [lost, 1], "b": [2]})
    assert results == {"a": 1, "b": 2}
    assert asker.asked == [(1, ("a",)), (2, ("b",)), (1, ("a",))]
    assert cluster.forgotten == ["a"]


def test_a_timeout_that_the_broker_tells_of_an_item_is_an_answer() -> None:
    cluster = FakeCluster()

    async def told(node_id: int, items: list[str]) -> dict[str, Any]:
        return {"a": item_error("topic 'a'", ErrorCode.REQUEST_TIMED_OUT)}

    base = AdminBase(cluster, {"default.api.timeout.ms": 9, "request.timeout.ms": 9})  # type: ignore[arg-type]
    results = asyncio.run(base._each(["a"], Controller(cluster), told, raise_errors=False))  # type: ignore[arg-type]
    assert isinstance(results.errors["a"], RequestTimedOutError)


def test_what_is_never_answered_has_its_last_error() -> None:
    cluster = FakeCluster()
    script = {"a": [NotCoordinatorError(), NetworkError("gone")], "b": [1]}
    results, asker = ask(cluster, Coordinator(cluster, GROUP), script)  # type: ignore[arg-type]
    assert isinstance(results.errors["a"], NetworkError)
    assert results == {"b": 1}
    assert len(asker.asked) == ROUNDS + 1


def test_a_broker_that_stands_still_takes_no_others_answers_away() -> None:
    class Impatient(FakeCluster):
        async def retrying(self, action: Callable[[], Awaitable[T]], timeout_ms: float) -> T:
            attempt = asyncio.ensure_future(action())
            await answered.wait()
            attempt.cancel()
            raise RequestTimedOutError("time is up")

    cluster = Impatient()
    answered = asyncio.Event()

    async def told(node_id: int, items: list[str]) -> dict[str, Any]:
        if node_id == cluster.coordinators["b"]:
            await asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(answered.set)
        return dict.fromkeys(items, 1)

    base = AdminBase(cluster, {"default.api.timeout.ms": 9, "request.timeout.ms": 9})  # type: ignore[arg-type]
    route = Coordinator(cluster, GROUP)  # type: ignore[arg-type]
    results = asyncio.run(base._each(["a", "b"], route, told, raise_errors=False))
    assert results == {"a": 1}
    assert isinstance(results.errors["b"], RequestTimedOutError)


def test_an_item_that_the_answer_does_not_name_is_an_error() -> None:
    cluster = FakeCluster()
    results, _ = ask(cluster, Controller(cluster), {"a": [...], "b": [1]})  # type: ignore[arg-type]
    assert isinstance(results.errors["a"], UnknownServerError)
    assert results == {"b": 1}


def test_without_a_known_controller_any_broker_is_asked() -> None:
    cluster = FakeCluster()
    cluster.view.controller_id = 9
    _, asker = ask(cluster, Controller(cluster), {"a": [1]})  # type: ignore[arg-type]
    assert asker.asked == [(ANY, ("a",))]


def test_a_broker_that_is_not_there_is_named() -> None:
    cluster = FakeCluster()
    results, asker = ask(cluster, Broker(cluster, int), {"2": [1], "7": [1]})  # type: ignore[arg-type]
    assert results == {"2": 1}
    assert isinstance(results.errors["7"], BrokerNotAvailableError)
    assert "there is no broker 7, only 1, 2, 3" in str(results.errors["7"])
    assert asker.asked == [(2, ("2",))]


def test_an_unknown_topic_is_asked_for_again_only_for_a_moment() -> None:
    route = Leader(FakeCluster())  # type: ignore[arg-type]
    unknown = UnknownTopicOrPartitionError()
    assert route.may_retry(unknown, 0.5)
    assert not route.may_retry(unknown, 5)
    assert route.may_retry(NotLeaderOrFollowerError(), 5)
    assert not Controller(FakeCluster()).may_retry(unknown, 0)  # type: ignore[arg-type]


ANSWERS = st.sampled_from(
    [1, None, NotControllerError(), TopicAlreadyExistsError(), NetworkError("gone"), ...]
)


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(ANSWERS, min_size=1, max_size=6)))
def test_every_item_ends_with_exactly_one_outcome(script: dict[str, list[Any]]) -> None:
    cluster = FakeCluster()
    results, _ = ask(cluster, Controller(cluster), script)  # type: ignore[arg-type]
    assert set(results) | set(results.errors) == set(script)
    assert not set(results) & set(results.errors)
    for item in results:
        assert results[item] in script[item]


def test_an_errors_text_says_what_it_is_about() -> None:
    assert item_error("topic 'a'", 0) is None
    error = item_error("topic 'a'", ErrorCode.INVALID_CONFIG, "no such config")
    assert str(error).endswith("topic 'a': no such config")
    bare = item_error("topic 'a'", ErrorCode.INVALID_CONFIG)
    assert type(error_for(ErrorCode.INVALID_CONFIG)).description in str(bare)


class LeavingCluster(FakeCluster):
    """Metadata names the brokers 1, 2, 3; of them are alive what each DescribeCluster says."""

    def __init__(self, *alive: tuple[int, ...]) -> None:
        super().__init__()
        self._alive = list(alive)

    async def ask(self, node_id: int, request: Any, **_: Any) -> Any:
        """The next answer; the last one stays."""
        assert (node_id, type(request)) == (ANY, DescribeClusterRequest)
        nodes = self._alive.pop(0) if len(self._alive) > 1 else self._alive[0]
        rows = [{"broker_id": n, "host": "b", "port": n} for n in nodes]
        return Answer.DescribeCluster(brokers=rows)


def every_broker(cluster: FakeCluster, dead: set[int]) -> tuple[Any, list[int]]:
    """Ask all brokers that are alive, some of them unreachable; the results, and who was asked."""
    settings = {"default.api.timeout.ms": 1000, "request.timeout.ms": 1000}
    base = AdminBase(cluster, settings)  # type: ignore[arg-type]
    asked: list[int] = []

    async def ask_one(node_id: int) -> str:
        asked.append(node_id)
        if node_id in dead:
            raise NetworkError(f"no {node_id}")
        return f"of {node_id}"

    return asyncio.run(base._every_broker(ask_one)), asked


def test_a_broker_that_metadata_still_names_is_not_asked() -> None:
    found, asked = every_broker(LeavingCluster((2, 3)), {1})
    assert (found, asked) == ({2: "of 2", 3: "of 3"}, [2, 3])


def test_where_a_broker_leaves_meanwhile_the_others_are_asked_again() -> None:
    found, asked = every_broker(LeavingCluster((1, 2, 3), (2, 3)), {1})
    assert found == {2: "of 2", 3: "of 3"}
    assert (asked.count(1), asked[-2:]) == (ROUNDS, [2, 3])


def test_a_broker_that_is_there_and_does_not_answer_is_an_error() -> None:
    with pytest.raises(NetworkError, match="no 1"):
        every_broker(LeavingCluster((1, 2, 3)), {1})
