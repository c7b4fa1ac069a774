"""Runs work of a handler that would block the event loop in steps. Other requests run in between.

If an API cannot answer row by row (splitting.py), because it must check the whole request before it
acts, its handler is a generator that yields where other work may run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from kstore.broker.runtime.slices import SLICE_S
from kstore.broker.state.work import RunningWork, Work

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles
    from kstore.broker.runtime.slices import Turns

__all__ = ["GoneError", "HasTurns", "in_turns", "sliced", "turn"]

T = TypeVar("T")


class HasTurns(Protocol):
    """The parts of a broker that such a handler uses."""

    @property
    def turns(self) -> Turns:
        """The turns of the loop that all such work shares."""

    @property
    def throttles(self) -> ClientThrottles | None:
        """Applies the quotas of clients; None while there are none."""


class GoneError(Exception):
    """The connection is closed, so the response is not needed."""


async def turn(broker: HasTurns, ctx: RequestContext, work: Callable[[], T]) -> T:
    """Run one step of the work when it is its turn. Its time is charged to the client. Raises
    GoneError if the client has disconnected.
    """
    await broker.turns.next()
    connection, throttles = ctx.connection, broker.throttles
    if connection is not None and connection.is_closed:
        raise GoneError
    if throttles is None or connection is None:
        return work()
    began = throttles.begin()
    try:
        return work()
    finally:
        throttles.spent(connection, began)


def sliced(broker: HasTurns, ctx: RequestContext, work: Work[T]) -> T | Awaitable[T]:
    """The result of short work, or an awaitable that does the rest in turns."""
    running = RunningWork(work)
    return running.result if running.go_on() else in_turns(broker, ctx, work)


async def in_turns(broker: HasTurns, ctx: RequestContext, work: Work[T]) -> T:
    """The result of work that runs in this turn of the loop and as many others as it needs. In each
    turn it runs only as long as other work can wait.
    """
    running = RunningWork(work)

    def slice_is_last() -> bool:
        end = monotonic() + SLICE_S
        done = running.go_on()
        while not done and monotonic() < end:
            done = running.go_on()
        return done

    done = slice_is_last()
    while not done:
        done = await turn(broker, ctx, slice_is_last)
    return running.result
