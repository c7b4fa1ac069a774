"""Waits for events in a process, a thread, or another task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TIMEOUT_S = 60.0
"""Generous: it only ends a test that would wait forever."""


def until(
    condition: Callable[[], object],
    what: str = "it comes about",
    timeout_s: float = TIMEOUT_S,
    pause_s: float = 0.01,
) -> None:
    """Wait until the condition is true. Raises AssertionError, with the condition's last error if
    it raised one.
    """
    from kstore.errors import KafkaError

    deadline = time.monotonic() + timeout_s
    last: Exception | None = None
    while True:
        try:
            if condition():
                return
        except (KafkaError, OSError) as problem:  # not yet: during an election, for example
            last = problem
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}") from last
        time.sleep(pause_s)


def answer_of(
    step: Callable[[], T], will_do: Callable[[T], object], what: str = "an answer that will do",
    timeout_s: float = TIMEOUT_S, pause_s: float = 0.02,
) -> T:  # fmt: skip
    """The step's result when that is true; until then, the step runs again."""
    found: list[T] = []

    def does() -> object:
        found[:] = [step()]
        return will_do(found[0])

    try:
        until(does, what, timeout_s, pause_s)
    except AssertionError as error:
        error.add_note(f"the last one: {found}")
        raise
    return found[0]


async def turns(count: int = 20) -> None:
    """Run everything that can run while virtual time stands still."""
    for _ in range(count):
        await asyncio.sleep(0)


async def reached(
    condition: Callable[[], object], what: str = "it comes about", timeout_s: float = TIMEOUT_S
) -> None:
    """Let other tasks run until the condition is true. Raises AssertionError."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.001)
