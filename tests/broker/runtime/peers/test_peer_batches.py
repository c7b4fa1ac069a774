"""Many questions to a broker in one request; a slow broker delays the others little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.peers.batches import PeerBatches
from kstore.errors import KafkaError, NetworkError
from tests.beside.waiting import turns

Ask = Callable[[int, list[str], float], Awaitable[list[str]]]


def batches(ask: Ask) -> PeerBatches[str, str]:
    peers: Any = SimpleNamespace(ask=ask)
    return PeerBatches(asyncio.get_running_loop(), lambda: peers, _same, _same, timeout_s=9.0)


def _same(questions: Any) -> Any:
    return questions


def test_what_is_asked_meanwhile_goes_with_the_next_request() -> None:
    asked: list[tuple[int, list[str]]] = []

    async def ask(node_id: int, questions: list[str], timeout_s: float) -> list[str]:
        asked.append((node_id, questions))
        await asyncio.sleep(0)
        return [question.upper() for question in questions]

    async def story() -> None:
        peers = batches(ask)
        answers = await asyncio.gather(*(peers.ask(1, name) for name in "ab"), peers.ask(2, "c"))
        assert answers == ["A", "B", "C"]
        assert asked == [(1, ["a", "b"]), (2, ["c"])]
        assert await peers.ask(1, "d") == "D"

    asyncio.run(story())


def test_a_failure_is_told_to_all_who_asked_and_the_next_request_is_another() -> None:
    async def ask(node_id: int, questions: list[str], timeout_s: float) -> list[str]:
        if "bad" in questions:
            raise NetworkError("lost")
        return questions[1:] if "short" in questions else questions

    async def story() -> None:
        peers = batches(ask)
        found = await asyncio.gather(peers.ask(1, "bad"), peers.ask(1, "a"), return_exceptions=True)
        assert [type(problem) for problem in found] == [NetworkError, NetworkError]
        with pytest.raises(KafkaError, match="not answered all"):
            await peers.ask(1, "short")
        assert await peers.ask(1, "a") == "a"

    asyncio.run(story())


def test_a_slow_answer_does_not_hold_up_the_next_question() -> None:
    async def story() -> None:
        slow: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

        async def ask(node_id: int, questions: list[str], timeout_s: float) -> list[str]:
            return await slow if "slow" in questions else questions

        peers = batches(ask)
        waiting = asyncio.ensure_future(peers.ask(1, "slow"))
        await turns(5)
        assert await peers.ask(1, "quick") == "quick"
        assert not waiting.done()
        slow.set_result(["at last"])
        assert await waiting == "at last"

    asyncio.run(story())


def test_who_waits_when_the_broker_stops_is_told() -> None:
    async def story() -> None:
        async def ask(node_id: int, questions: list[str], timeout_s: float) -> list[str]:
            await asyncio.Event().wait()
            return questions

        peers = batches(ask)
        waiting = [asyncio.ensure_future(peers.ask(1, "a"))]
        await turns(5)
        waiting.append(asyncio.ensure_future(peers.ask(1, "b")))
        await turns(5)
        await peers.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(problem) for problem in found] == [NetworkError, NetworkError]

    asyncio.run(story())
