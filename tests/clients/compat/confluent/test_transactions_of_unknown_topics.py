"""Transactions with messages of topics that do not exist yet: all of them, or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.compat.confluent.conftest import Library
from tests.conformance.kstore_broker import KstoreBroker

PATIENCE_S = 60.0
Reports = dict[bytes, Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """A broker that makes no topic unless it is asked to."""
    settings = {"auto.create.topics.enable": "false"}
    with KstoreBroker(tmp_path_factory.mktemp("strict"), overrides=settings) as running:
        yield running


def begun(library: Library, topic: str, timeout_ms: int = 30_000) -> tuple[Any, Reports]:
    """A producer that has produced b"first" in a transaction, and its reports."""
    settings = library.config(transactional_id=topic)
    settings |= {
        "message.timeout.ms": timeout_ms,
        "topic.metadata.propagation.max.ms": timeout_ms,
        "topic.metadata.refresh.interval.ms": 200,
    }
    producer = library.root.Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    reports: Reports = {}
    produce(producer, topic, b"first", reports)
    return producer, reports


def produce(producer: Any, topic: str, value: bytes, reports: Reports) -> None:
    """Produce a message, and keep the error of its report."""
    told = lambda error, message: reports.update({message.value(): error})  # noqa: E731
    producer.produce(topic, value, on_delivery=told)


def committed(library: Library, topic: str) -> list[bytes]:
    """The values that a reader finds up to a message b"last", which is produced for this."""
    writer = library.root.Producer(library.config())
    writer.produce(topic, b"last")
    assert writer.flush(PATIENCE_S) == 0
    found: list[bytes] = []
    settings = {"isolation_level": "read_committed"}
    with library.consumer(library.new_name(), **settings) as reader:
        reader.subscribe([topic])
        while found[-1:] != [b"last"]:
            message = reader.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    return found


def test_a_commit_waits_for_messages_whose_topic_is_not_known(library: Library) -> None:
    topic = f"{library.name}-late"
    producer, reports = begun(library, topic)
    timer = threading.Timer(1.5, library.new_topic, (1, topic))
    timer.start()
    producer.commit_transaction(PATIENCE_S)
    timer.join()
    producer.flush(PATIENCE_S)
    assert reports == {b"first": None}
    assert committed(library, topic) == [b"first", b"last"]


def test_a_message_that_fails_fails_its_transaction(library: Library) -> None:
    producer, reports = begun(library, f"{library.name}-never", timeout_ms=1500)
    with pytest.raises(library.root.KafkaException) as failed:
        producer.commit_transaction(PATIENCE_S)
    error = failed.value.args[0]
    assert (error.txn_requires_abort(), error.retriable()) == (True, False)
    producer.abort_transaction(PATIENCE_S)
    producer.flush(PATIENCE_S)
    assert reports[b"first"] is not None


def test_a_message_of_an_aborted_transaction_is_in_no_later_one(library: Library) -> None:
    topic = f"{library.name}-aborted"
    producer, reports = begun(library, topic)
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    library.new_topic(name=topic)
    produce(producer, topic, b"second", reports)
    producer.commit_transaction(PATIENCE_S)
    producer.flush(PATIENCE_S)
    assert reports[b"first"].code() == library.root.KafkaError._PURGE_QUEUE
    assert reports[b"second"] is None
    assert committed(library, topic) == [b"second", b"last"]
