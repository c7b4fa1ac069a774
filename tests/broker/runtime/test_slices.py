"""Work in slices has the same result as work in one step, and yields at the expected points."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from kstore.broker.api.requests.turns import sliced
from kstore.broker.runtime.slices import Room, Slices, Turns
from kstore.broker.state.work import ROWS_BETWEEN, Work, each, each_work, in_order

T = TypeVar("T")
MANY = 10 * ROWS_BETWEEN


def carried_out(work: Work[T]) -> tuple[T, int]:
    """The result, and the number of turns of other tasks."""
    turns = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, turns
        turns += 1


@pytest.mark.parametrize("count", [0, 1, ROWS_BETWEEN - 1, ROWS_BETWEEN, MANY + 1])
def test_each_gives_others_their_turn_after_so_many_rows(count: int) -> None:
    made, turns = carried_out(each(lambda item: item * 2, range(count)))
    assert made == [item * 2 for item in range(count)]
    assert turns == count // ROWS_BETWEEN


def test_rows_within_rows_have_turns_of_their_own() -> None:
    made, turns = carried_out(each_work(lambda n: each(str, range(n)), [1, MANY, 2]))
    assert [len(rows) for rows in made] == [1, MANY, 2]
    assert turns == 10
    _, turns = carried_out(each_work(lambda n: each(str, range(n)), [0] * MANY))
    assert turns == 10


def test_sorting_is_done_in_parts() -> None:
    items = [number * 7919 % MANY for number in range(MANY)]
    made, turns = carried_out(in_order(items, str))
    assert made == sorted(items, key=str)
    assert turns >= 3 * MANY // ROWS_BETWEEN


def broker(loop: asyncio.AbstractEventLoop) -> Any:
    return SimpleNamespace(turns=Turns(loop), throttles=None)


def test_short_work_is_done_at_once_and_long_work_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.broker.api.requests.turns.SLICE_S", 0)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ctx: Any = SimpleNamespace(connection=None)
        assert sliced(broker(loop), ctx, each(str, range(3))) == ["0", "1", "2"]
        waiting = sliced(broker(loop), ctx, each(str, range(MANY)))
        assert isinstance(waiting, Awaitable)
        turns = 0
        task = asyncio.ensure_future(waiting)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert task.result() == [str(number) for number in range(MANY)]
        assert turns >= MANY // ROWS_BETWEEN - 1

    asyncio.run(run())


def test_two_who_share_turns_have_one_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.broker.runtime.slices.SLICE_S", 0)
    rounds: list[int] = []
    now = 0

    async def work(turns: Turns) -> None:
        slices = Slices(turns)
        for _ in range(5):
            await slices.breathe()
            rounds.append(now)

    async def run() -> None:
        nonlocal now
        turns = Turns(asyncio.get_running_loop())
        tasks = [asyncio.ensure_future(work(turns)) for _ in range(3)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            now += 1

    asyncio.run(run())
    assert len(rounds) == len(set(rounds)) == 15


def test_what_has_no_room_waits_in_its_order() -> None:
    async def run() -> None:
        room, inside = Room(10), list[int]()

        async def enter(size: int) -> None:
            await room.enter(size)
            inside.append(size)

        tasks = [asyncio.ensure_future(enter(size)) for size in (4, 5, 2, 99, 1)]
        await asyncio.sleep(0)
        assert inside == [4, 5]
        room.leave(4)
        await asyncio.sleep(0)
        assert inside == [4, 5, 2]
        tasks[3].cancel()
        await asyncio.sleep(0)
        room.leave(5)
        await asyncio.sleep(0)
        assert inside == [4, 5, 2, 1], "who is gone does not stop others"

    asyncio.run(run())


def test_what_is_larger_than_all_the_room_goes_alone() -> None:
    async def run() -> None:
        room = Room(10)
        await room.enter(99)
        other = asyncio.ensure_future(room.enter(1))
        await asyncio.sleep(0)
        assert not other.done()
        room.leave(99)
        await asyncio.sleep(0)
        assert other.done()

    asyncio.run(run())
