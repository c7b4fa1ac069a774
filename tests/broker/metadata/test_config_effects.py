"""Configs take effect: of topics and brokers, at run time, and after a crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.record import batches, decode
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, only, produce_request

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
RECORDS = [b"the same words again and again " * 30] * 20


class Client(Wire):
    """One connection for requests about configs and records."""

    def alter(
        self, kind: int, name: str, key: str, value: str | None, *, dry: bool = False
    ) -> tuple[int, str | None]:
        """Set, or with None delete, one setting; the error code and its words."""
        answer = self.configure(kind, name, dry=dry, **{key: value})
        return answer.error_code, answer.error_message

    def replace(self, kind: int, name: str, **pairs: str) -> int:
        rows = [{"name": key.replace("_", "."), "value": pairs[key]} for key in pairs]
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}
        answer = self.call(Ask.AlterConfigs(resources=[resource]), 2)
        return int(answer.responses[0].error_code)

    def value(self, kind: int, name: str, key: str) -> tuple[str | None, int]:
        [config] = self.configs(kind, name, key)
        return config.value, config.config_source

    def produce(self, topic: str, values: list[bytes], *, acks: int = -1, codec: int = 0) -> int:
        request = produce_request(topic, build_batch(values, compression=codec), acks=acks)
        return int(only(self.call(request, 9)).error_code)

    def stored(self, topic: str) -> bytes:
        """All batches of partition 0, as they are in the log."""
        request = fetch_request(topic, fetch_part(max_bytes=1 << 24), max_bytes=1 << 24)
        return bytes(only(self.call(request, 12)).records)


@pytest.fixture
def client(running: KstoreBroker) -> Iterator[Client]:
    with Client(running) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_batches_are_stored_in_the_topics_compression(
    client: Client, name: str, codec: int
) -> None:
    client.make_topic(f"stored-{name}", compression_type=name)
    for sent in range(5):
        assert client.produce(f"stored-{name}", RECORDS, codec=sent) == 0
    data = client.stored(f"stored-{name}")
    assert [batch.compression for batch in batches(data)] == [codec] * 5
    assert [record.value for record in decode(data)] == RECORDS * 5
    assert [record.offset for record in decode(data)] == list(range(100))


def test_a_producers_compression_is_kept_where_the_topic_says_so(client: Client) -> None:
    client.make_topic("kept")
    for sent in range(5):
        client.produce("kept", RECORDS, codec=sent)
    assert [batch.compression for batch in batches(client.stored("kept"))] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "low", "high"), [("gzip", "1", "9"), ("zstd", "-1000", "19"), ("lz4", "1", "12")]
)
def test_a_higher_compression_level_stores_fewer_bytes(
    client: Client, name: str, low: str, high: str
) -> None:
    draw = random.Random(1)
    words = [bytes(draw.choices(range(97, 123), k=draw.randrange(2, 9))) for _ in range(300)]
    text = [b" ".join(draw.choices(words, k=500)) for _ in range(20)]
    sizes = []
    for level in (low, high):
        configs = {"compression_type": name, f"compression_{name}_level": level}
        client.make_topic(f"level-{name}-{level}", **configs)
        assert client.produce(f"level-{name}-{level}", text) == 0
        sizes.append(len(client.stored(f"level-{name}-{level}")))
    assert sizes[1] < sizes[0]


def test_a_damaged_batch_is_not_made_good_by_compressing_it(client: Client) -> None:
    client.make_topic("damaged", compression_type="gzip")
    batch = bytearray(build_batch(RECORDS))
    batch[-1] ^= 1
    answer = only(client.call(produce_request("damaged", bytes(batch)), 9))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE


def test_more_in_sync_replicas_than_there_are_replicas_are_not_asked_for(client: Client) -> None:
    """As in Kafka: a topic with one replica accepts writes whatever min.insync.replicas is."""
    client.make_topic("two-in-sync", min_insync_replicas="2")
    assert client.produce("two-in-sync", RECORDS) == 0
    assert client.value(TOPIC, "two-in-sync", "min.insync.replicas") == ("2", 1)
    assert client.alter(BROKER, "", "min.insync.replicas", "3") == (0, None)
    client.make_topic("by-default")
    assert client.value(TOPIC, "by-default", "min.insync.replicas") == ("3", 3)
    assert client.produce("by-default", RECORDS) == 0
    assert client.alter(BROKER, "", "min.insync.replicas", "1") == (0, None)


def test_a_brokers_default_acts_on_open_topics_at_once(client: Client) -> None:
    client.make_topic("small-by-default")
    client.make_topic("large-by-itself", max_message_bytes="2000000")
    big = [b"x" * 1_500_000]
    assert client.produce("small-by-default", big) == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce("large-by-itself", big) == 0
    for name in ("", "1"):  # all brokers, this one
        assert client.alter(BROKER, name, "message.max.bytes", "3000000") == (0, None)
        assert client.produce("small-by-default", big) == 0
        assert client.value(TOPIC, "small-by-default", "max.message.bytes")[0] == "3000000"
        assert client.alter(BROKER, name, "message.max.bytes", None) == (0, None)
        assert client.produce("small-by-default", big) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("min.cleanable.dirty.ratio", "1d", "1.0"),
        ("min.cleanable.dirty.ratio", " 1e-5 ", "1.0E-5"),
        ("retention.ms", "+5", "5"),
        ("cleanup.policy", "delete, delete", "delete"),
        ("preallocate", "TRUE", "true"),
    ],
)
def test_values_may_be_written_as_java_reads_them(
    client: Client, key: str, text: str, shown: str
) -> None:
    topic = f"java-{key}-{len(text)}"
    client.make_topic(topic)
    assert client.alter(TOPIC, topic, key, text) == (0, None)
    assert client.value(TOPIC, topic, key) == (shown, 1)
    assert client.produce(topic, RECORDS) == 0


def test_what_is_only_validated_is_not_set(client: Client) -> None:
    client.make_topic("dry")
    assert client.alter(TOPIC, "dry", "retention.ms", "1000", dry=True) == (0, None)
    assert client.alter(GROUP, "dry", "consumer.heartbeat.interval.ms", "6000", dry=True)[0] == 0
    assert client.alter(BROKER, "1", "num.io.threads", "9", dry=True) == (0, None)
    assert client.value(TOPIC, "dry", "retention.ms") == ("604800000", 5)
    assert client.value(GROUP, "dry", "consumer.heartbeat.interval.ms") == ("5000", 5)
    assert client.value(BROKER, "1", "num.io.threads") == ("8", 5)


def test_replacing_leaves_only_what_is_given(client: Client) -> None:
    client.make_topic("replaced", retention_ms="1", flush_ms="2")
    assert client.replace(TOPIC, "replaced", segment_ms="3") == 0
    assert client.value(TOPIC, "replaced", "segment.ms") == ("3", 1)
    assert client.value(TOPIC, "replaced", "retention.ms") == ("604800000", 5)


def test_what_does_nothing_is_said_once(running: KstoreBroker, client: Client) -> None:
    client.make_topic("inert", remote_log_copy_disable="false")
    client.make_topic("inert-too", remote_log_copy_disable="false")
    said = (running.folder / "kstore.err").read_text()
    assert said.count("remote.log.copy.disable was set. No effect here") == 1


def test_a_loggers_level_changes_what_is_logged(running: KstoreBroker, client: Client) -> None:
    log = running.folder / "kstore.err"
    assert client.alter(LOGGER, "1", "kstore.broker", "FATAL") == (0, None)
    assert client.alter(BROKER, "1", "background.threads", "9") == (0, None)
    assert "background.threads" not in log.read_text()
    assert client.alter(LOGGER, "1", "kstore.broker", None) == (0, None)
    assert client.alter(BROKER, "1", "num.network.threads", "4") == (0, None)
    assert "num.network.threads was set. No effect here: one event loop" in log.read_text()
    assert client.alter(LOGGER, "1", "kstore.broker", "LOUD")[0] == ErrorCode.INVALID_CONFIG


def test_connections_are_limited_as_set_now(client: Client, running: KstoreBroker) -> None:
    assert client.alter(BROKER, "1", "max.connections.per.ip", "1") == (0, None)
    with pytest.raises((ConnectionError, RuntimeError)):
        Client(running).call(Ask.DescribeCluster(), 0)
    assert client.alter(BROKER, "1", "max.connections.per.ip", None) == (0, None)
    Client(running).call(Ask.DescribeCluster(), 0)


def test_everything_that_was_set_is_there_after_a_crash(
    start_broker: Callable[..., KstoreBroker],
) -> None:
    broker = start_broker()
    client = Client(broker)
    client.make_topic("lasting")
    group = "team a/b%"
    assert client.alter(TOPIC, "lasting", "retention.ms", "1000") == (0, None)
    assert client.alter(BROKER, "", "message.max.bytes", "3000000") == (0, None)
    assert client.alter(BROKER, "1", "log.segment.bytes", "4000000") == (0, None)
    assert client.alter(GROUP, group, "consumer.session.timeout.ms", "50000") == (0, None)
    assert client.alter(METRICS, "all", "metrics", "*") == (0, None)
    odd = [".", "..", "%2E", "#", "ä" * 400, "x" * 3000]
    for name in odd:
        assert client.alter(GROUP, name, "streams.num.standby.replicas", "1") == (0, None)
    client.close()
    broker.kill()
    broker.start()
    client = Client(broker)
    assert client.value(TOPIC, "lasting", "retention.ms") == ("1000", 1)
    assert client.value(TOPIC, "lasting", "max.message.bytes") == ("3000000", 3)
    assert client.value(TOPIC, "lasting", "segment.bytes") == ("4000000", 2)
    assert client.value(GROUP, group, "consumer.session.timeout.ms") == ("50000", 8)
    assert client.value(METRICS, "all", "metrics") == ("*", 7)
    assert client.produce("lasting", [b"x" * 2_500_000]) == 0
    listed = client.call(Ask.ListConfigResources(resource_types=[GROUP, METRICS]), 1)
    assert [row.resource_name for row in listed.config_resources] == [*sorted([group, *odd]), "all"]
    for name in odd:
        assert client.alter(GROUP, name, "streams.num.standby.replicas", None) == (0, None)
    listed = client.call(Ask.ListConfigResources(resource_types=[GROUP]), 1)
    assert [row.resource_name for row in listed.config_resources] == [group]
    client.close()


def test_a_group_protocol_that_is_switched_off_is_not_spoken(
    start_broker: Callable[..., KstoreBroker],
) -> None:
    client = Client(start_broker({"group.coordinator.rebalance.protocols": "classic"}))
    beat = client.call(Ask.ConsumerGroupHeartbeat(group_id="g", member_id="m"), 0)
    assert beat.error_code == ErrorCode.UNSUPPORTED_VERSION
    described = client.call(Ask.ConsumerGroupDescribe(group_ids=["g"]), 0)
    assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    client.close()


def test_what_stands_in_the_file_is_shown_with_its_source_and_its_other_units(
    start_broker: Callable[..., KstoreBroker],
) -> None:
    broker = start_broker({"log.retention.hours": "24", "broker.rack": "r1", "num.io.threads": "4"})
    client = Client(broker)
    client.make_topic("a-day")
    assert client.value(TOPIC, "a-day", "retention.ms") == ("86400000", 5)
    assert client.value(BROKER, "1", "log.retention.hours") == ("24", 4)
    assert client.value(BROKER, "1", "num.io.threads") == ("4", 4)
    assert client.alter(BROKER, "1", "num.io.threads", "9")[0] == ErrorCode.INVALID_REQUEST
    assert client.alter(BROKER, "1", "log.retention.ms", "7000") == (0, None)
    assert client.value(TOPIC, "a-day", "retention.ms") == ("7000", 2)
    cluster = client.call(Ask.DescribeCluster(), 0)
    assert [node.rack for node in cluster.brokers] == ["r1"]
    assert "num.io.threads (override) has no effect: one event loop" in broker.error_output()
    client.close()
