"""Steps on a shard of groups: short steps run at once, long ones in slices, and one at a time."""

from __future__ import annotations

import asyncio

import pytest

from kstore.broker.runtime.groups import step_line
from kstore.broker.runtime.groups.step_line import DROPPED_PER_TURN, StepLine
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode, KafkaError
from tests.broker.harness.plane_harness import ManualLoop

PER_SLICE = 10


class Line(StepLine):
    """A line whose clock advances each time it is read, and the results of its steps."""

    def __init__(self) -> None:
        self.manual = ManualLoop()
        super().__init__(self.manual)  # type: ignore[arg-type]
        self.done: list[str] = []

    def work(self, name: str, rows: int) -> Work[str]:
        for number in range(rows):
            self.done.append(f"{name}{number}")
            yield
        self.done.append(name)
        return name


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    now = 0.0

    def look() -> float:
        nonlocal now
        now += step_line.SLICE_S / PER_SLICE
        return now

    monkeypatch.setattr(step_line, "monotonic", look)
    return Line()


def test_a_short_step_is_done_at_once(line: Line) -> None:
    step = line.begin(line.work("a", 3))
    assert step.done
    assert step.result() == "a"
    assert not line.manual.soon


def test_a_long_step_is_done_in_slices(line: Line) -> None:
    rows = 10 * PER_SLICE
    step = line.begin(line.work("a", rows))
    before = 0
    while not step.done:
        assert len(line.done) - before <= PER_SLICE + 1
        before = len(line.done)
        line.manual.turn()
    assert step.result() == "a"
    assert len(line.done) == rows + 1


def test_what_comes_meanwhile_is_done_behind_it(line: Line) -> None:
    first = line.begin(line.work("a", 3 * PER_SLICE))
    second = line.begin(line.work("b", 1))
    third = line.begin(line.work("c", 1))
    assert [step.done for step in (first, second, third)] == [False] * 3
    while line.manual.soon:
        line.manual.turn()
    ends = [name for name in line.done if not name[1:]]
    assert ends == ["a", "b", "c"]
    assert line.done.index("a") < line.done.index("b0")


def test_a_step_that_fails_tells_who_asks_and_lets_the_others_go_on(line: Line) -> None:
    def failing() -> Work[None]:
        for _ in range(2 * PER_SLICE):
            yield
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    first, second = line.begin(failing()), line.begin(line.work("b", 0))
    while line.manual.soon:
        line.manual.turn()
    with pytest.raises(KafkaError):
        first.result()
    assert second.result() == "b"


def test_steps_go_on_after_one_whose_receiver_fails(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: object) -> None:
        raise OSError("the connection is gone")

    first = line.begin(line.work("a", 2 * PER_SLICE))
    first.when_done(failing)
    second = line.begin(line.work("b", 0))
    while line.manual.soon:
        line.manual.turn()
    assert second.result() == "b"
    assert "the connection is gone" in caplog.text


def test_who_waits_when_the_line_is_closed_has_to_look_for_another_coordinator(line: Line) -> None:
    async def story() -> None:
        steps = [line.begin(line.work(name, 3 * PER_SLICE)) for name in "ab"]
        waiting = [asyncio.ensure_future(step.wait()) for step in steps]
        await asyncio.sleep(0)
        line.close()
        for task in waiting:
            with pytest.raises(KafkaError) as told:
                await task
            assert told.value.code == ErrorCode.NOT_COORDINATOR
        done = list(line.done)
        line.manual.turn()
        assert line.done == done

    asyncio.run(story())


def test_the_steps_of_a_closed_line_are_dropped_a_few_in_each_turn(line: Line) -> None:
    dropped: list[object] = []
    for number in range(3 * DROPPED_PER_TURN):
        step = line.begin(line.work(str(number), 3 * PER_SLICE))
        step.when_done(dropped.append)
    done = list(line.done)
    line.close()
    assert len(dropped) == DROPPED_PER_TURN
    while line.manual.soon:
        before = len(dropped)
        callback, args = line.manual.soon.pop(0)
        callback(*args)
        assert len(dropped) - before <= DROPPED_PER_TURN
    assert len(dropped) == 3 * DROPPED_PER_TURN
    assert line.done == done


def test_a_step_that_closes_its_own_line_is_the_last_one(line: Line) -> None:
    def closing() -> Work[None]:
        for _ in range(2 * PER_SLICE):
            yield
        line.close()
        yield
        line.done.append("too late")

    first, second = line.begin(closing()), line.begin(line.work("b", 0))
    while line.manual.soon:
        line.manual.turn()
    assert first.done
    assert second.done
    assert line.done == []


def test_many_steps_that_are_due_at_the_same_time_take_a_slice_of_each_turn(line: Line) -> None:
    steps = [line.begin_soon(line.work(str(number), 3)) for number in range(3 * PER_SLICE)]
    assert line.done == []
    turns = 0
    while line.manual.soon:
        before = sum(step.done for step in steps)
        line.manual.soon, soon = [], line.manual.soon
        for callback, given in soon:
            callback(*given)
        turns += 1
        assert sum(step.done for step in steps) - before <= PER_SLICE
    assert all(step.done for step in steps)
    assert turns > len(steps) // PER_SLICE
