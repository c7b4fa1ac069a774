"""The rules of poll(), for both Consumer and AIOConsumer."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kstore.clients import AIOConsumer, Consumer, WakeupError
from kstore.errors import InvalidGroupIdError, OffsetOutOfRangeError
from tests.clients.scripted_log import FAST, TP, Log, batch
from tests.clients.scripted_log import broker as broker  # a fixture
from tests.reference.fake_broker import FakeBroker


class Faces:
    """Makes consumers of one kind, and calls their methods alike."""

    def __init__(self, kind: type[Consumer] | type[AIOConsumer], broker: FakeBroker) -> None:
        self._kind = kind
        self._broker = broker
        self.runner = asyncio.Runner()
        self.made: list[Any] = []

    def make(self, log: Log, **settings: Any) -> Any:
        """One that reads from the log's start."""
        log.serve(self._broker)
        merged: dict[str, Any] = {"auto_offset_reset": "earliest", **FAST, **settings}
        made: Any = self._kind(bootstrap_servers=self._broker.address, **merged)
        self.made.append(made)
        self.call(made.assign, [TP])
        return made

    def call(self, method: Any, *arguments: Any, **options: Any) -> Any:
        async def call() -> Any:
            found = method(*arguments, **options)
            return await found if inspect.isawaitable(found) else found

        if self._kind is Consumer:
            return method(*arguments, **options)
        return self.runner.run(call())

    def records(self, consumer: Any) -> list[Any]:
        """What iteration gives until consumer.timeout.ms."""
        if self._kind is Consumer:
            return list(consumer)

        async def collect() -> list[Any]:
            return [record async for record in consumer]

        return list(self.runner.run(collect()))


@pytest.fixture(params=[Consumer, AIOConsumer])
def faces(request: pytest.FixtureRequest, broker: FakeBroker) -> Iterator[Faces]:
    """Each test once with Consumer and once with AIOConsumer."""
    made = Faces(request.param, broker)
    with made.runner:
        yield made
        for consumer in made.made:
            made.call(consumer.close)


class Doubled:
    """An interceptor that hands every record out twice, but those of one value never."""

    def on_consume(self, records: list[Any]) -> list[Any]:
        return [record for record in records if record.value != b"never" for _ in range(2)]

    def on_commit(self, offsets: object) -> None:
        pass

    def close(self) -> None:
        pass


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


def test_records_come_by_poll_fetch_and_iteration(faces: Faces) -> None:
    log = Log(batch(0, b"a", b"b"), batch(2, b"c"))
    polled = faces.make(log)
    assert values(faces.call(polled.poll, 60_000, 2)) == [b"a", b"b"]
    assert values(faces.call(polled.poll, 60_000)) == [b"c"]
    assert faces.call(polled.poll, 0) == []
    fetched = faces.make(log)
    (whole,) = faces.call(fetched.fetch, 60_000).values()
    assert values(list(whole)) == [b"a", b"b", b"c"]
    assert values(faces.records(faces.make(log, consumer_timeout_ms=200))) == [b"a", b"b", b"c"]


def test_poll_arrow_needs_no_numpy(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)  # pyarrow alone does not bring it
    made = faces.make(Log(batch(0, b"a", b"b")))
    columns = faces.call(made.poll_arrow, 60_000).to_pydict()
    assert columns["topic"] == [TP.topic] * 2
    assert (columns["partition"], columns["value"]) == ([TP.partition] * 2, [b"a", b"b"])


def test_iteration_without_topics_is_refused(faces: Faces) -> None:
    made = faces.make(Log(batch(0, b"a")))
    faces.call(made.unsubscribe)
    with pytest.raises(RuntimeError, match=r"neither topics nor partitions.*call subscribe\(\)"):
        faces.records(made)


def test_iteration_goes_on_when_interceptors_leave_nothing(faces: Faces) -> None:
    log = Log(batch(0, b"a"), batch(1, b"never", b"b"))
    made = faces.make(log, consumer_timeout_ms=200, interceptor_classes=[Doubled])
    assert values(faces.records(made)) == [b"a", b"a", b"b", b"b"]


def test_interceptors_see_what_is_polled_and_not_what_is_fetched(faces: Faces) -> None:
    log = Log(batch(0, b"a"))
    made = faces.make(log, interceptor_classes=[Doubled])
    assert values(faces.call(made.poll, 60_000)) == [b"a", b"a"]
    made = faces.make(log, interceptor_classes=[Doubled])
    (whole,) = faces.call(made.fetch, 60_000).values()
    assert values(list(whole)) == [b"a"]


def test_wakeup_ends_one_poll(faces: Faces) -> None:
    made = faces.make(Log(batch(0, b"a")))
    made.wakeup()
    with pytest.raises(WakeupError, match="wakeup"):
        faces.call(made.poll, 60_000)
    assert values(faces.call(made.poll, 60_000)) == [b"a"]


def test_an_error_is_raised_and_the_next_poll_looks_again(faces: Faces) -> None:
    log = Log(batch(5, b"a"), start=5)
    made = faces.make(log, auto_offset_reset="none")
    for _ in range(2):
        faces.call(made.seek, TP, 2)
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 is outside"):
            faces.call(made.poll, 60_000)
    faces.call(made.seek, TP, 5)
    assert values(faces.call(made.poll, 60_000)) == [b"a"]


def test_a_commit_needs_a_group(faces: Faces) -> None:
    made = faces.make(Log())
    with pytest.raises(InvalidGroupIdError):
        faces.call(made.commit_async)


def test_who_polls_when_closed_is_told(faces: Faces) -> None:
    made = faces.make(Log())
    assert faces.call(made.poll, 0) == []
    faces.call(made.close)
    faces.call(made.close)
    for method in (made.poll, made.poll_arrow, made.fetch):
        with pytest.raises(RuntimeError, match="the client is closed"):
            faces.call(method, 0)


def test_polls_inside_a_poll_are_refused(faces: Faces) -> None:
    made = faces.make(Log(batch(0, b"a")))
    problems: list[str] = []
    loop = made._polls

    def nested() -> None:
        poll = loop.poll(0, None)
        try:
            poll.send(None)
        except RuntimeError as error:
            problems.append(str(error))

    loop._callbacks.append(nested)
    faces.call(made.poll, 0)
    assert problems == [loop.BUSY]
    assert "may use a consumer" in loop.BUSY
