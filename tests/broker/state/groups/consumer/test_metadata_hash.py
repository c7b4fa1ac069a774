"""A group computes the hash of its topics with one read of each topic."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from uuid import uuid4

from kstore.broker.state.groups.consumer.metadata_hash import metadata_hash
from kstore.broker.state.metadata.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

PARTITIONS = 1000


class Counted(tuple[PartitionImage, ...]):
    """Partitions that count how often they are read."""

    looked_at = 0

    def __iter__(self) -> Iterator[PartitionImage]:
        for partition in super().__iter__():
            Counted.looked_at += 1
            yield partition


def topic(name: str, first: int = 0) -> TopicImage:
    replicas = [(first, 1 + index % 2, 3) for index in range(PARTITIONS)]
    partitions = Counted(PartitionImage(each[0], 0, each, each) for each in replicas)
    return TopicImage(name, uuid4(), partitions, {})


def cluster() -> MetadataImage:
    brokers = [BrokerImage(node, (), rack=f"r{node % 2}" if node else None) for node in range(3)]
    image = MetadataImage("c").with_live_brokers(brokers, 0)
    return image.with_topics(*(topic(f"t{number}") for number in range(3)))


def by_definition(image: MetadataImage, names: list[str]) -> int:
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        racks = [
            sorted({str(image.brokers[n].rack) for n in part.replicas if n in image.brokers})
            for part in tuple.__iter__(image.topics[name].partitions)
        ]
        digest.update(f"{image.topics[name].topic_id}:{name}:{racks};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def test_the_number_is_that_of_ids_counts_and_racks() -> None:
    image = cluster()
    assert metadata_hash(image, ["t1", "t0", "gone"]) == by_definition(image, ["t0", "t1"])
    assert metadata_hash(image, ["gone"]) == 0
    moved = image.with_broker(BrokerImage(1, (), rack="elsewhere"))
    assert metadata_hash(moved, ["t0"]) == by_definition(moved, ["t0"])
    assert metadata_hash(moved, ["t0"]) != metadata_hash(image, ["t0"])


def test_a_topic_that_is_the_same_is_not_looked_at_again() -> None:
    image = cluster()
    metadata_hash(image, image.topics)
    Counted.looked_at = 0
    known = metadata_hash(image, image.topics)
    assert Counted.looked_at == 0
    changed = image.with_topics(image.topics["t1"]._replace(partitions=topic("t1", 2).partitions))
    assert metadata_hash(changed, changed.topics) != known
    assert Counted.looked_at == PARTITIONS
