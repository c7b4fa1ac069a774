"""Messages of topics that are not known yet: whatever is wrong with one, flush() ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kstore.clients.compat.confluent import KafkaError, Producer

PATIENCE_S = 20.0


class Waiting:
    """A producer whose brokers do not answer, and the errors of its messages."""

    def __init__(self) -> None:
        settings = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300}
        self.producer = Producer(settings)
        self.errors: dict[bytes, KafkaError | None] = {}

    def produce(self, value: bytes, topic: str = "t", **more: Any) -> None:
        """Produce a message, and keep the error of its report."""
        told = lambda error, message: self.errors.update({message.value(): error})  # noqa: E731
        self.producer.produce(topic, value, on_delivery=told, **more)

    def reported(self) -> dict[bytes, KafkaError | None]:
        """The errors, when all messages have one."""
        assert self.producer.flush(PATIENCE_S) == 0
        return self.errors


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.producer.purge()
    made.producer.close(PATIENCE_S)


def test_numbers_of_a_message_behind_a_waiting_one_are_checked_at_once(waiting: Waiting) -> None:
    waiting.produce(b"first")
    with pytest.raises(OverflowError):
        waiting.produce(b"wrong", timestamp=2**70)
    with pytest.raises(OverflowError):
        waiting.produce(b"wrong", partition=2**40)
    with pytest.raises(TypeError):
        waiting.produce(b"wrong", timestamp="5")
    with pytest.raises(TypeError):
        waiting.produce(b"wrong", partition=None)
    waiting.produce(b"last", timestamp=5.0)
    assert waiting.reported().keys() == {b"first", b"last"}


def test_any_error_of_a_waiting_message_is_reported(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = waiting.producer._append

    def refuse(sent: Any) -> Any:
        if sent.value == b"wrong":
            raise TypeError("not like that")
        return append(sent)

    waiting.produce(b"first")
    monkeypatch.setattr(waiting.producer, "_append", refuse)
    waiting.produce(b"wrong")
    waiting.produce(b"last")
    errors = waiting.reported()
    assert errors[b"wrong"] is not None
    assert errors[b"wrong"].str() == "TypeError: not like that"
    assert errors.keys() == {b"first", b"wrong", b"last"}


def test_a_topic_that_stays_closed_is_a_timeout(waiting: Waiting) -> None:
    waiting.producer._producer._shell.sending._sender.regrouping.add("t")
    waiting.produce(b"first")
    waiting.produce(b"last", topic="other")
    errors = waiting.reported()
    assert errors[b"first"] == errors[b"last"] == KafkaError._MSG_TIMED_OUT
