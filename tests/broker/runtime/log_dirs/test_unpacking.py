"""Connections take turns using the thread that reads compressed batches."""

from __future__ import annotations

import asyncio
from typing import Any

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.log_dirs.unpacking import Unpacking

GOOD = build_batch([bytes(1000)], timestamp=1, compression=4)
Events = list[tuple[str, Any]]


class Connection:
    peer = "here"

    def __init__(self, name: str, events: Events) -> None:
        self.name, self.events = name, events
        self.is_closed = False
        self.verdicts = self

    def __setitem__(self, place: int, verdict: Any) -> None:
        self.events.append((self.name, place))
        assert verdict.status == 0

    def admitted(self) -> None:
        self.events.append((self.name, "admitted"))

    def close(self) -> None:
        self.is_closed = True


def jobs(count: int, batch: Any = GOOD) -> Any:
    return [(place, batch, 1 << 20, -1, -1) for place in range(count)]


def run(*asked: tuple[str, Any], closed: str = "") -> tuple[Events, list[str]]:
    events: Events = []
    reports: list[str] = []

    async def go() -> None:
        unpacking = Unpacking(asyncio.get_running_loop(), reports.append)
        connections = [(Connection(name, events), given) for name, given in asked]
        for connection, given in connections:
            unpacking.ask(connection, given)  # type: ignore[arg-type]
            connection.is_closed = connection.name == closed
        for _ in range(500):
            if all(c.is_closed or (c.name, "admitted") in events for c, _ in connections):
                break
            await asyncio.sleep(0.01)
        unpacking.close()

    asyncio.run(go())
    return events, reports


def test_each_connection_has_one_batch_in_a_round() -> None:
    events, _ = run(("a", jobs(20)), ("b", jobs(1)))
    assert events.index(("b", "admitted")) <= events.index(("a", 2))
    assert [each for each in events if each[0] == "a"][-1] == ("a", "admitted")


def test_nothing_is_done_for_a_connection_that_is_closed() -> None:
    events, _ = run(("a", jobs(5)), ("b", jobs(1)), closed="a")
    assert events == [("b", 0), ("b", "admitted")]


def test_a_look_that_fails_ends_the_connection_with_a_word() -> None:
    events, reports = run(("a", jobs(1, batch=None)))
    assert events == []
    [sentence] = reports
    assert sentence.startswith("closing the connection here: its compressed batch could not be")
