"""The hand-written encoding of Metadata's topics is the message's own, byte for byte."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.api import RequestContext
from kstore.broker.api.metadata.metadata import EncodedMetadata, Missing, handle_metadata
from kstore.broker.runtime.membership.membership import StandaloneMembership
from kstore.broker.state.metadata.image import (
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kstore.broker.state.metadata.retirement import Retirement
from kstore.protocol import ProtocolError
from kstore.protocol.metadata.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS = range(14)
nodes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
partitions = st.builds(
    PartitionImage,
    st.integers(-1, 9),
    st.integers(-1, 99),
    nodes,
    nodes,
    st.integers(-1, 2**31 - 1),
    offline=nodes,
)
names = st.text(min_size=1, max_size=200)
topics = st.builds(
    TopicImage,
    names | st.just("__consumer_offsets"),
    st.uuids(),
    st.lists(partitions, max_size=5).map(tuple) | partitions.map(lambda one: (one,) * 140),
    st.just({}),
    st.none()
    | st.builds(Retirement, st.integers(0, 2**31 - 1), st.just(0), st.just(0), st.booleans()),
)
missing = st.builds(Missing, names, st.uuids())


BROKERS = frozenset(range(5))
"""That the image knows; clients may reach but some of them."""


def error_of(leader: int, version: int, alive: set[int] | None) -> int:
    if leader < 0:
        return 5  # LEADER_NOT_AVAILABLE
    if alive is None or leader in alive:
        return 0
    return 72 if version >= 6 and leader in BROKERS else 5  # LISTENER_NOT_FOUND


def as_messages(
    topic: TopicImage | Missing, code: int, operations: int, version: int, alive: set[int] | None
) -> MetadataResponseTopic:
    if isinstance(topic, Missing):
        return MetadataResponseTopic(
            error_code=code,
            name=topic.name,
            topic_id=topic.topic_id,
            topic_authorized_operations=-(2**31) if topic.name is None else operations,
        )
    retirement = topic.retirement
    return MetadataResponseTopic(
        error_code=code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=operations,
        partitions=[
            MetadataResponsePartition(
                error_code=error_of(partition.leader, version, alive),
                partition_index=index,
                leader_id=-1
                if alive is not None and partition.leader not in alive
                else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[
                    node
                    for node in partition.replicas
                    if alive is not None and (node not in alive or node in partition.offline)
                ],
                partition_epoch=partition.partition_epoch,
            )
            for index, partition in enumerate(topic.partitions)
        ],
        partition_count=-1 if retirement is None or not retirement.holds else retirement.first,
    )


@given(
    found=st.lists(st.tuples(topics | missing, st.integers(0, 130)), max_size=5),
    version=st.sampled_from(VERSIONS),
    operations=st.sampled_from([-(2**31), 0b110111111000]),
    max_epoch=st.sampled_from([-1, 0, 2**31 - 1]),
    alive=st.none() | st.sets(st.integers(0, 9)),
    epochs=st.booleans(),
)
def test_every_version_is_encoded_as_the_message_would_be(
    found: list[tuple[TopicImage | Missing, int]],
    version: int,
    operations: int,
    max_epoch: int,
    alive: set[int] | None,
    epochs: bool,
) -> None:
    if version < 8:
        operations = -(2**31)
    wanted = MetadataResponse(
        cluster_id="c",
        controller_id=3,
        max_partition_epoch=max_epoch,
        topics=[as_messages(topic, code, operations, version, alive) for topic, code in found],
    )
    for row in (row for topic in wanted.topics for row in topic.partitions if not epochs):
        row.partition_epoch = -1
    for topic in wanted.topics if not epochs else ():
        topic.partition_count = -1
    encoded = EncodedMetadata(
        MetadataResponse(cluster_id="c", controller_id=3, max_partition_epoch=max_epoch),
        [t for t, _ in found],
        [c for _, c in found],
        operations,
        alive,
        BROKERS,
        epochs,
    )
    assert encoded.encode(version) == wanted.encode(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_without_a_name_needs_version_12(version: int) -> None:
    found = [Missing(None, UUID(int=7))]
    encoded = EncodedMetadata(MetadataResponse(), found, [100], -(2**31), None, ())
    if version < 12:
        with pytest.raises(ProtocolError):
            encoded.encode(version)
    else:
        decoded = MetadataResponse.decode(encoded.encode(version), version)
        assert decoded.topics == [
            MetadataResponseTopic(error_code=100, name=None, topic_id=UUID(int=7))
        ]


def test_all_topics_of_an_image() -> None:
    image = MetadataImage("c").with_broker(
        BrokerImage(1, (Endpoint("L", "h", 9092),)), controller=True
    )
    one = PartitionImage(1, 0, (1,), (1,))
    for number in range(3):
        image = image.with_topics(
            TopicImage(f"t{number}", UUID(int=number + 1), (one,) * number, {})
        )
    config = {"auto.create.topics.enable": True}
    node = SimpleNamespace(node_id=1, config=config)
    broker = SimpleNamespace(
        node=node, image=image, membership=StandaloneMembership(1, 0), authorizer=None
    )
    ctx = RequestContext(3, 12, 1, "me", "host", "id", "L", "User:ANONYMOUS")
    encoded = handle_metadata(broker, MetadataRequest(topics=None), ctx)  # type: ignore[arg-type]
    assert isinstance(encoded, EncodedMetadata)
    decoded = MetadataResponse.decode(encoded.encode(12), 12)
    assert [(t.name, len(t.partitions)) for t in decoded.topics] == [
        ("t0", 0), ("t1", 1), ("t2", 2),
    ]  # fmt: skip
    assert [node.port for node in decoded.brokers] == [9092]
