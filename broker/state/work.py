"""Work in small pieces: a generator that yields where other work may run, and returns its result.
The caller decides whether other work runs.

Decisions that may visit many rows are written in this way. They use no loop and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from heapq import merge
from typing import Generic, TypeVar

__all__ = ["ROWS_BETWEEN", "RunningWork", "Work", "each", "each_work", "in_order", "whole"]

A = TypeVar("A")
T = TypeVar("T")
ROWS_BETWEEN = 128
"""The number of rows between two yields."""
Work = Generator[None, None, T]
"""Work that yields where other work may run, and returns its result."""


class RunningWork(Generic[T]):
    """Work in progress, of which the caller runs a piece whenever it has time."""

    __slots__ = ("_work", "result")

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self.result: T
        """Set when the last piece is done."""

    def go_on(self) -> bool:
        """Run a piece. Returns whether it was the last one."""
        try:
            next(self._work)
        except StopIteration as done:
            self.result = done.value
            return True
        return False


def whole(work: Work[T]) -> T:
    """Run all of the work at once, and return its result."""
    running = RunningWork(work)
    while not running.go_on():
        pass
    return running.result


def each(make: Callable[[A], T], items: Iterable[A]) -> Work[list[T]]:
    """``[make(item) for item in items]``."""
    made = []
    for number, item in enumerate(items, 1):
        made.append(make(item))
        if number % ROWS_BETWEEN == 0:
            yield
    return made


def each_work(make: Callable[[A], Work[T]], items: Iterable[A]) -> Work[list[T]]:
    """The results of the work on each item."""
    made = []
    for number, item in enumerate(items, 1):
        made.append((yield from make(item)))
        if number % ROWS_BETWEEN == 0:
            yield
    return made


def in_order(items: Iterable[A], key: Callable[[A], str]) -> Work[list[A]]:
    """``sorted(items, key=key)``."""
    pairs = yield from each(lambda item: (key(item), item), items)
    parts = []
    for start in range(0, len(pairs), ROWS_BETWEEN):
        part = pairs[start : start + ROWS_BETWEEN]
        parts.append(sorted(part, key=lambda pair: pair[0]))
        if len(part) == ROWS_BETWEEN:
            yield
    return (yield from each(lambda pair: pair[1], merge(*parts, key=lambda pair: pair[0])))
