"""An answer that comes later, without a task."""

from __future__ import annotations

import asyncio

import pytest

from kstore.broker.runtime.response_future import ResponseFuture
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.groups.classic import HeartbeatResponse
from kstore.protocol.schema import Message

ANSWER = HeartbeatResponse(throttle_time_ms=1)


def test_its_receiver_is_called_once_with_the_first_answer() -> None:
    received: list[Message | Exception] = []
    late = ResponseFuture()
    late.when_given(received.append)
    assert received == []
    late.give(ANSWER)
    late.give(HeartbeatResponse())
    assert received == [ANSWER]


def test_a_receiver_that_fails_keeps_nobody_else_from_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(_: Message | Exception) -> None:
        raise OSError("the connection is gone")

    late = ResponseFuture()
    late.when_given(failing)
    late.give(ANSWER)
    assert "the connection is gone" in caplog.text


def test_who_asks_after_it_was_given_gets_it_at_once() -> None:
    received: list[Message | Exception] = []
    late = ResponseFuture()
    late.give(ANSWER)
    late.when_given(received.append)
    assert received == [ANSWER]


def test_an_error_can_be_turned_into_an_answer() -> None:
    received: list[Message | Exception] = []

    def turn(answer: Message | KafkaError) -> Message:
        assert isinstance(answer, KafkaError)
        return HeartbeatResponse(error_code=answer.code)

    late = ResponseFuture().converted(turn)
    late.when_given(received.append)
    late.give(error_for(ErrorCode.NOT_COORDINATOR))
    assert received == [HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)]


def test_other_errors_reach_the_receiver_as_they_are() -> None:
    received: list[Message | Exception] = []
    bug = ValueError("a bug")

    def turn(answer: Message | KafkaError) -> Message:
        raise bug

    for given in (bug, ANSWER):
        late = ResponseFuture().converted(turn)
        late.when_given(received.append)
        late.give(given)
    assert received == [bug, bug]


def test_it_can_be_awaited() -> None:
    async def story() -> None:
        late, failed, given_up = ResponseFuture(), ResponseFuture(), ResponseFuture()

        async def answer(asked: ResponseFuture) -> Message:
            return await asked

        tasks = [asyncio.ensure_future(answer(each)) for each in (late, failed, given_up)]
        await asyncio.sleep(0)
        late.give(ANSWER)
        failed.give(error_for(ErrorCode.NOT_COORDINATOR))
        tasks[2].cancel()
        given_up.give(ANSWER)
        assert await tasks[0] == ANSWER
        with pytest.raises(KafkaError) as refused:
            await tasks[1]
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]

    asyncio.run(story())
