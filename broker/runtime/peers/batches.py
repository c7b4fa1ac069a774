"""Batches of questions to other brokers. Questions that arrive while a request to a broker is in
flight are sent with the next request, unless that request takes long. The caller defines the
questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kstore.errors import KafkaError, NetworkError

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.protocol.schema import Message

__all__ = ["PeerBatches"]

Q = TypeVar("Q")
A = TypeVar("A")
MAX_QUESTIONS = 500
"""The limit of questions in one request; the rest is sent with the next."""
PATIENCE_S = 0.05
"""A request that takes longer no longer delays the next one, ..."""
MAX_IN_PROGRESS = 16
"""... up to this number of requests."""


class PeerBatches(Generic[Q, A]):
    """Questions of one kind, and their callers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peers: Lazy[Peers],
        request_of: Callable[[list[Q]], Message],
        answers_of: Callable[[Any], Sequence[A]],
        timeout_s: float,
    ) -> None:
        """``answers_of`` returns the answers that a response contains, in the order of the
        questions.
        """
        self._loop = loop
        self._peers = peers
        self._request_of = request_of
        self._answers_of = answers_of
        self._timeout_s = timeout_s
        self._waiting: dict[int, list[tuple[Q, asyncio.Future[A]]]] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._in_progress: dict[int, set[asyncio.Task[None]]] = {}

    async def ask(self, node_id: int, question: Q) -> A:
        """The answer of a broker. Raises KafkaError (usually a NetworkError) if there is none."""
        answer: asyncio.Future[A] = self._loop.create_future()
        self._waiting.setdefault(node_id, []).append((question, answer))
        if node_id not in self._asking:
            self._asking[node_id] = self._loop.create_task(self._ask_all(node_id))
        return await answer

    async def close(self) -> None:
        """Stop. Waiting callers get an error."""
        tasks = [*self._asking.values(), *chain(*self._in_progress.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_all(self, node_id: int) -> None:
        in_progress = self._in_progress.setdefault(node_id, set())
        try:
            while node_id in self._waiting:
                waiting = self._waiting.pop(node_id)
                some, rest = waiting[:MAX_QUESTIONS], waiting[MAX_QUESTIONS:]
                if rest:
                    self._waiting[node_id] = rest
                task = self._loop.create_task(self._ask_some(node_id, some))
                in_progress.add(task)
                task.add_done_callback(in_progress.discard)
                await asyncio.wait({task}, timeout=PATIENCE_S)
                if len(in_progress) >= MAX_IN_PROGRESS:
                    await asyncio.wait(in_progress, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._asking[node_id]
            _fail(self._waiting.pop(node_id, []), NetworkError("this broker stops"))

    async def _ask_some(self, node_id: int, some: list[tuple[Q, asyncio.Future[A]]]) -> None:
        request = self._request_of([question for question, _ in some])
        try:
            response = await self._peers().ask(node_id, request, self._timeout_s)
        except KafkaError as problem:
            _fail(some, problem)
            return
        except asyncio.CancelledError:
            _fail(some, NetworkError("this broker stops"))
            raise
        answers = self._answers_of(response)
        if len(answers) != len(some):
            _fail(some, NetworkError(f"broker {node_id} has not answered all requests"))
            return
        for (_, waits), answer in zip(some, answers, strict=True):
            if not waits.done():
                waits.set_result(answer)


def _fail(some: list[tuple[Q, asyncio.Future[A]]], problem: KafkaError) -> None:
    for _, waits in some:
        if not waits.done():
            waits.set_exception(problem)
