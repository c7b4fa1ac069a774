"""The contents of a topic and the state of a group, read by an unmodified client (librdkafka), so
that kstore's own reader does not judge what kstore wrote. And producers, settings and users with
its clients.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import cycle
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin

TIMEOUT_S = 60.0


def consumer_of(
    servers: str, group: str = "nobody", settings: Mapping[str, Any] | None = None
) -> Any:
    """It starts at the beginning and commits nothing by itself."""
    return ck.Consumer({
        "bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 200, "log_level": 0,
        **(settings or {}),
    })  # fmt: skip


def quick_member(servers: str, topic: str, group: str, **settings: Any) -> Any:
    """A consumer in a group: it commits often, and soon sees new and deleted partitions."""
    quick = {
        "enable.auto.commit": True, "auto.commit.interval.ms": 100,
        "topic.metadata.refresh.interval.ms": 500,
    }  # fmt: skip
    made = consumer_of(servers, group, quick | settings)
    made.subscribe([topic])
    return made


def read_first(
    servers: str, topic: str, count: int, partition: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> list[Any]:  # fmt: skip
    """The first messages of a partition; fewer, if there are no more."""
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    with closing(consumer_of(servers, settings=settings)) as reader:
        reader.assign([ck.TopicPartition(topic, partition, 0)])
        while len(found) < count and time.monotonic() < deadline:
            found += [each for each in reader.consume(100, 0.2) if each.error() is None]
    return found


def read_all(
    servers: str, topic: str, partitions: Iterable[int] = (0,),
    settings: Mapping[str, Any] | None = None, *, strict: bool = False,
) -> list[Any]:  # fmt: skip
    """All committed messages up to the current ends, by partition, in the order of arrival.
    ``strict``: an error fails.
    """
    ends = {"isolation.level": "read_committed", "enable.partition.eof": True}
    found: list[Any] = []
    assigned = [ck.TopicPartition(topic, index, 0) for index in partitions]
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    with closing(consumer_of(servers, settings=ends | dict(settings or {}))) as reader:
        reader.assign(assigned)
        while len(ended) < len(assigned):
            assert time.monotonic() < deadline, f"{topic} was not read to its end, but {ended}"
            for message in reader.consume(1000, 0.5):
                if message.error() is None:
                    found.append(message)
                    ended.discard(message.partition())
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    assert not strict, message.error()
    return sorted(found, key=lambda message: message.partition())


def commits(consumer: Any, offsets: Sequence[ck.TopicPartition]) -> bool:
    """Whether the group's coordinator takes these offsets."""
    try:
        consumer.commit(offsets=list(offsets), asynchronous=False)
    except ck.KafkaException:
        return False
    return True


def committed_offset(servers: str, group: str, topic: str, partition: int = 0) -> int:
    """The group's committed offset of a partition."""
    with closing(consumer_of(servers, group)) as consumer:
        [committed] = consumer.committed([ck.TopicPartition(topic, partition)], TIMEOUT_S)
    return int(committed.offset)


def write_all(
    servers: str, topic: str, values: Iterable[bytes | str], partitions: Sequence[int] = (-1,),
    settings: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Produce records with these values to these partitions in turn (-1: the client chooses). Each
    is acknowledged.
    """
    producer = ck.Producer({"bootstrap.servers": servers, **(settings or {})})
    errors: list[Any] = []
    for value, partition in zip(values, cycle(partitions), strict=False):
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert set(errors) <= {None}


def make_topics(servers: str, *names: str, partitions: int = 1, **configs: str) -> None:
    """Topics with one replica; ``retention_ms="1"`` is a config."""
    client = admin.AdminClient({"bootstrap.servers": servers})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    new = [admin.NewTopic(name, partitions, 1, config=settings) for name in names]
    for made in client.create_topics(new).values():
        made.result(TIMEOUT_S)


def alter_broker(client: Any, name: str, value: str, broker: str = "1") -> None:
    """Set a broker's setting at run time. Raises KafkaException."""
    row = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
    kind = admin.ConfigResource.Type.BROKER
    change = admin.ConfigResource(kind, broker, incremental_configs=[row])
    for future in client.incremental_alter_configs([change]).values():
        future.result(TIMEOUT_S)


def alter_scram(client: Any, *rows: Any) -> None:
    """Set or remove the passwords of users."""
    for row in rows:  # librdkafka takes a user only once per request
        for future in client.alter_user_scram_credentials([row]).values():
            future.result(TIMEOUT_S)


SHA_256, SHA_512 = admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512


def scram_user(user: str, password: str, mechanism: Any = SHA_256) -> Any:
    """A row of `alter_scram`."""
    info = admin.ScramCredentialInfo(mechanism, 4096)
    return admin.UserScramCredentialUpsertion(user, info, password.encode())
