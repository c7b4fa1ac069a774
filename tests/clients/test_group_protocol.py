"""The default group protocol: consumer if the broker supports it; and the first record's time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.clients.core.consumer.subscription import SubscriptionPattern
from kstore.clients.io.connection import BrokerConnection
from kstore.config.definition import ConfigError
from kstore.protocol.schema import Message
from tests.beside.topic_records import polled
from tests.conformance.kstore_broker import KstoreBroker

_names = itertools.count(1)
CLASSIC_ONLY = {
    "group.coordinator.rebalance.protocols": "classic",
    "group.initial.rebalance.delay.ms": "0",
}
NO_CONVERSION = {
    "group.consumer.migration.policy": "disabled",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of this process's clients, by their names, in order."""
    names: list[str] = []
    send = BrokerConnection.send

    def noted(self: BrokerConnection, request: Message, *rest: Any, **more: Any) -> Any:
        names.append(type(request).__name__.removesuffix("Request"))
        return send(self, request, *rest, **more)

    monkeypatch.setattr(BrokerConnection, "send", noted)
    return names


def filled_topic(bootstrap: str) -> str:
    """A topic of ten records."""
    topic = f"t{next(_names)}"
    with AdminClient(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    with Producer(bootstrap) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(10)]).result(60)
    return topic


def read(consumer: Consumer, topic: str) -> int:
    """How many records there are to read."""
    consumer.subscribe([topic])
    return len(polled(consumer, 10))


def test_a_new_group_has_its_first_record_after_one_heartbeat(
    broker: KstoreBroker, sent: list[str]
) -> None:
    topic = filled_topic(broker.bootstrap)
    sent.clear()
    with Consumer(broker.bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(60_000):
            pass
        before_records = sent[: sent.index("Fetch")]
    assert before_records.count("ConsumerGroupHeartbeat") <= 2  # that of joining, that of having
    assert "JoinGroup" not in sent
    others = [name for name in before_records if name not in ("ApiVersions", "FindCoordinator")]
    assert len(others) <= 8, before_records


def test_a_broker_that_has_switched_it_off_gets_the_classic_one(
    tmp_path: Path, sent: list[str]
) -> None:
    with KstoreBroker(tmp_path, overrides=CLASSIC_ONLY) as broker:
        topic = filled_topic(broker.bootstrap)
        with Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            assert read(consumer, topic) == 10
            consumer.commit()
        assert sent.count("ConsumerGroupHeartbeat") == 1
        assert "SyncGroup" in sent
        with Consumer(broker.bootstrap, group_id="p") as consumer:
            consumer.subscribe(SubscriptionPattern(topic))
            with pytest.raises(ValueError, match=r"SubscriptionPattern needs group\.protocol"):
                consumer.poll(60_000)


def test_a_classic_group_that_is_not_converted_is_joined_as_it_is(
    tmp_path: Path, sent: list[str]
) -> None:
    with KstoreBroker(tmp_path, overrides=NO_CONVERSION) as broker:
        topic = filled_topic(broker.bootstrap)
        old = Consumer(
            broker.bootstrap,
            group_id="g",
            group_protocol="classic",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        with old, Consumer(broker.bootstrap, group_id="g") as new:
            assert read(old, topic) == 10
            sent.clear()
            new.subscribe([topic])
            while not new.assignment():
                new.poll(20)
                old.poll(20)
            assert "ConsumerGroupHeartbeat" in sent
            assert "JoinGroup" in sent


@pytest.mark.parametrize(
    "settings",
    [
        {"group_protocol": "classic"},
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 1_000},
        {"partition_assignment_strategy": ["roundrobin"]},
        {"group_instance_id": "one"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_the_classic_protocol_mean_it(
    broker: KstoreBroker, sent: list[str], settings: dict[str, Any]
) -> None:
    topic = filled_topic(broker.bootstrap)
    sent.clear()
    with Consumer(broker.bootstrap, group_id=topic, **settings) as consumer:
        consumer.subscribe([topic])
        while "JoinGroup" not in sent:
            consumer.poll(20)
    assert "ConsumerGroupHeartbeat" not in sent


@pytest.mark.parametrize(
    ("protocol", "setting", "value"),
    [
        ("consumer", "session_timeout_ms", 10_000),
        ("consumer", "heartbeat_interval_ms", 1_000),
        ("consumer", "partition_assignment_strategy", ["range"]),
        ("classic", "group_remote_assignor", "uniform"),
    ],
)
def test_a_setting_of_the_other_protocol_is_refused(
    protocol: str, setting: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match="remove one of the two") as refused:
        Consumer("localhost:1", group_id="g", group_protocol=protocol, **{setting: value})
    assert refused.value.key == setting.replace("_", ".")
