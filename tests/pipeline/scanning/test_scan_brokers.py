"""Topics as Arrow through brokers: the same records as by the brokers' log dir."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import kstore
from kstore.clients import Producer
from kstore.pipeline import fetching
from kstore.pipeline.errors import PipelineError
from kstore.testing.brokers import Broker
from tests.pipeline.conftest import KEEP

BEGAN_MS = 1_700_000_000_000
MakeTopic = Callable[..., str]


def test_aborted_transactions_are_left_out_where_that_is_asked_for(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, **KEEP)
    with Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number, ends in enumerate(("abort_transaction", "commit_transaction")):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=1)
            producer.flush()  # an abort drops records that were not sent
            getattr(producer, ends)()
    given: dict[str, Any] = {
        "topic": topic,
        "bootstrap_servers": broker.bootstrap_servers,
        "columns": ["value"],
    }
    assert kstore.scan(**given).to_polars()["value"].to_list() == [b"0", b"1"]
    committed = kstore.scan(**given, isolation="read_committed")
    assert committed.to_polars()["value"].to_list() == [b"1"]
    as_config = kstore.scan(**given, config={"isolation.level": "read_committed"})
    assert as_config.to_polars()["value"].to_list() == [b"1"]
    both = kstore.scan(
        **given, config={"isolation.level": "read_committed"}, isolation="read_uncommitted"
    )
    assert both.to_polars()["value"].to_list() == [b"0", b"1"]
    with pytest.raises(ValueError, match="level is 'none'"):
        kstore.scan(**given, config={"isolation.level": "none"})
    log_dir = kstore.scan(
        broker.folder / "data", topic, columns=["value"], isolation="read_committed"
    )
    assert log_dir.to_polars()["value"].to_list() == [b"1"]


def test_brokers_give_what_their_log_dir_holds(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(3, **KEEP)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(300):
            producer.send(
                topic, b"%d" % number, partition=number % 3, timestamp=BEGAN_MS + number,
                headers=[("n", b"%d" % number)],
            )  # fmt: skip
    servers = broker.bootstrap_servers
    options: dict[str, Any]
    for rows, options in (
        (300, {}),
        (10, {"partitions": [2], "columns": ["value"], "start_offset": 10, "end_offset": 20}),
        (30, {"start_time": BEGAN_MS + 100, "end_time": BEGAN_MS + 130, "columns": ["headers"]}),
        (0, {"start_time": BEGAN_MS * 2}),
    ):
        found = kstore.scan(topic=topic, bootstrap_servers=[servers], **options).to_arrow()
        assert found == kstore.scan(broker.folder / "data", topic, **options).to_arrow()
        assert found.num_rows == rows


def test_brokers_that_lack_the_topic_say_so(broker: Broker) -> None:
    with pytest.raises(PipelineError, match=r"topic missing: .* do not have this topic"):
        kstore.scan(topic="missing", bootstrap_servers=broker.bootstrap_servers)


def test_connections_end_with_the_reading(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **KEEP)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, bytes(100))
    before = threading.active_count()
    batches = iter(kstore.scan(topic=topic, bootstrap_servers=broker.bootstrap_servers))
    assert next(batches).num_rows == 1
    assert threading.active_count() > before
    del batches
    assert threading.active_count() == before


def test_few_rows_are_fetched_with_few_bytes(
    broker: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1, **KEEP)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(40):
            producer.send(topic, b"%d" % number + bytes(50_000))
            producer.flush()
    fetched: list[int] = []
    answer = fetching._RangeReader._answer

    def counted(reader: Any, pending: Any, offset: int) -> Any:
        data = answer(reader, pending, offset)
        fetched.append(len(data.records or b""))
        return data

    monkeypatch.setattr(fetching._RangeReader, "_answer", counted)
    servers = broker.bootstrap_servers
    for config, most in (({}, 110_000), ({"max.partition.fetch.bytes": 600_000}, 610_000)):
        orders = kstore.scan(topic=topic, bootstrap_servers=servers, config=config).for_rows(1)
        batches = iter(orders)
        assert next(batches).num_rows == 1
        del batches
        assert 0 < max(fetched) <= most
        assert len(fetched) <= 2
        fetched.clear()
    whole = kstore.scan(topic=topic, bootstrap_servers=servers, columns=["offset"]).for_rows(1)
    assert whole.to_polars()["offset"].to_list() == list(range(40))
