"""Transactions with messages of topics that do not exist yet: all of them, or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.compat.confluent.conftest import MODULES, Library
from tests.conformance.kstore_broker import KstoreBroker

PATIENCE_S = 60.0
Reports = dict[bytes, Any]


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """A broker that makes no topic unless it is asked to."""
    settings = {"auto.create.topics.enable": "false"}
    with KstoreBroker(tmp_path_factory.mktemp("strict"), overrides=settings) as running:
        yield running


@pytest.fixture(params=sorted(MODULES))
def strict(request: pytest.FixtureRequest, strict_broker: KstoreBroker) -> Library:
    """Each of the two modules, with that broker."""
    return Library(MODULES[request.param], strict_broker.bootstrap)


def begun(strict: Library, topic: str, timeout_ms: int = 30_000) -> tuple[Any, Reports]:
    """A producer that has produced b"first" in a transaction, and its reports."""
    settings = strict.config(transactional_id=topic)
    settings |= {
        "message.timeout.ms": timeout_ms,
        "topic.metadata.propagation.max.ms": timeout_ms,
        "topic.metadata.refresh.interval.ms": 200,
    }
    producer = strict.root.Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    reports: Reports = {}
    produce(producer, topic, b"first", reports)
    return producer, reports


def produce(producer: Any, topic: str, value: bytes, reports: Reports) -> None:
    """Produce a message, and keep the error of its report."""
    told = lambda error, message: reports.update({message.value(): error})  # noqa: E731
    producer.produce(topic, value, on_delivery=told)


def committed(strict: Library, topic: str) -> list[bytes]:
    """The values that a reader finds up to a message b"last", which is produced for this."""
    writer = strict.root.Producer(strict.config())
    writer.produce(topic, b"last")
    assert writer.flush(PATIENCE_S) == 0
    found: list[bytes] = []
    settings = {"isolation_level": "read_committed"}
    with strict.consumer(strict.new_name(), **settings) as reader:
        reader.subscribe([topic])
        while found[-1:] != [b"last"]:
            message = reader.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    return found


def create(strict: Library, topic: str) -> None:
    new = strict.admin.NewTopic(topic, 1, 1)
    client = strict.client()
    client.create_topics([new])[topic].result(PATIENCE_S)


def test_a_commit_waits_for_messages_whose_topic_is_not_known(strict: Library) -> None:
    topic = f"{strict.name}-late"
    producer, reports = begun(strict, topic)
    timer = threading.Timer(1.5, create, (strict, topic))
    timer.start()
    producer.commit_transaction(PATIENCE_S)
    timer.join()
    producer.flush(PATIENCE_S)
    assert reports == {b"first": None}
    assert committed(strict, topic) == [b"first", b"last"]


def test_a_message_that_fails_fails_its_transaction(strict: Library) -> None:
    producer, reports = begun(strict, f"{strict.name}-never", timeout_ms=1500)
    with pytest.raises(strict.root.KafkaException) as failed:
        producer.commit_transaction(PATIENCE_S)
    error = failed.value.args[0]
    assert (error.txn_requires_abort(), error.retriable()) == (True, False)
    producer.abort_transaction(PATIENCE_S)
    producer.flush(PATIENCE_S)
    assert reports[b"first"] is not None


def test_a_message_of_an_aborted_transaction_is_in_no_later_one(strict: Library) -> None:
    topic = f"{strict.name}-aborted"
    producer, reports = begun(strict, topic)
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    create(strict, topic)
    produce(producer, topic, b"second", reports)
    producer.commit_transaction(PATIENCE_S)
    producer.flush(PATIENCE_S)
    assert reports[b"first"].code() == strict.root.KafkaError._PURGE_QUEUE
    assert reports[b"second"] is None
    assert committed(strict, topic) == [b"second", b"last"]
