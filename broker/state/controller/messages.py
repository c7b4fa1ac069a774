"""Messages to brokers: creates entries of LeaderAndIsr, UpdateMetadata and StopReplica from the
controller's state. The channels decide what is sent to which broker, and when.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.broker.state.controller.election import NO_LEADER
from kstore.broker.state.controller.state import ControllerState, TopicId
from kstore.broker.state.metadata.image import PartitionImage
from kstore.protocol.controller.broker_requests import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrTopic,
    LiveLeader,
    StopReplicaPartition,
    StopReplicaTopic,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataTopic,
)
from kstore.protocol.schema import Message

__all__ = [
    "DELETED",
    "deleted_topic",
    "leaderships",
    "live_brokers",
    "live_leaders",
    "metadata",
    "stops",
    "without_epochs",
]

DELETED = -2
"""The leader in UpdateMetadata, and the leader epoch in StopReplica, of deleted partitions."""
UNKNOWN = -1


def leaderships(
    state: ControllerState, topic: str, indexes: Iterable[int], node: int, controller_epoch: int
) -> LeaderAndIsrTopic | None:
    """The partitions of one topic of which a broker has a replica. None if there are none."""
    image = state.topics.get(topic)
    if image is None:
        return None
    count = len(image.partitions)
    entry = LeaderAndIsrTopic(
        topic_name=topic, topic_id=image.topic_id, partition_count=state.count(topic)
    )
    retirement = state.retirement(topic)
    if retirement is not None:
        entry.retired_from = retirement.first
    for index in indexes:
        if index >= count or node not in image.partitions[index].replicas:
            continue
        partition = image.partitions[index]
        unused = partition.state_version == 0
        row = LeaderAndIsrPartition(
            partition_index=index,
            controller_epoch=controller_epoch,
            adding_replicas=list(partition.adding),
            removing_replicas=list(partition.removing),
            is_new=unused or (node in partition.adding and node not in partition.isr),
        )
        row.leader_recovery_state = int(partition.recovering)
        _add_state(row, partition)
        entry.partition_states.append(row)
    return entry if entry.partition_states else None


def metadata(
    state: ControllerState, topic: str, indexes: Iterable[int], controller_epoch: int
) -> UpdateMetadataTopic | None:
    """The existing partitions of one topic, as all brokers get them. None if there are none."""
    image = state.topics.get(topic)
    if image is None:
        return None
    count = len(image.partitions)
    entry = UpdateMetadataTopic(topic_name=topic, topic_id=image.topic_id, partition_total=count)
    retirement = state.retirement(topic)
    if retirement is not None:
        entry.retired_from, entry.retired_epoch = retirement.first, retirement.epoch
        entry.retired_partition_epoch = retirement.partition_epoch
        entry.retirement_holds = retirement.holds
    for index in indexes:
        if index >= count:
            continue
        partition = image.partitions[index]
        alive = state.alive(topic, index)
        row = UpdateMetadataPartition(
            partition_index=index,
            controller_epoch=controller_epoch,
            offline_replicas=[each for each in partition.replicas if each not in alive],
            eligible_leader_replicas=list(partition.elr),
            last_known_elr=list(partition.last_known_elr),
        )
        _add_state(row, partition)
        entry.partition_states.append(row)
    return entry if entry.partition_states else None


def _add_state(
    row: LeaderAndIsrPartition | UpdateMetadataPartition, partition: PartitionImage
) -> None:
    row.leader = partition.leader
    row.leader_epoch = partition.leader_epoch
    row.isr = list(partition.isr)
    row.state_version = partition.state_version
    row.replicas = list(partition.replicas)
    row.partition_epoch = partition.partition_epoch


def deleted_topic(topic: TopicId, count: int, controller_epoch: int) -> UpdateMetadataTopic:
    """The message that a topic is deleted."""
    entry = UpdateMetadataTopic(topic_name=topic.name, topic_id=topic.topic_id)
    entry.partition_states = [
        UpdateMetadataPartition(
            partition_index=index, controller_epoch=controller_epoch, leader=DELETED
        )
        for index in range(count)
    ]
    return entry


def stops(
    state: ControllerState, node: int, replicas: Iterable[tuple[TopicId, int, bool]]
) -> list[StopReplicaTopic]:
    """The replicas that one broker must stop. The flag says whether to delete their logs, too. The
    log of a replica that is assigned to the broker again is not deleted.
    """
    found: dict[TopicId, StopReplicaTopic] = {}
    for topic, index, delete in replicas:
        entry = found.get(topic)
        if entry is None:
            entry = StopReplicaTopic(topic_name=topic.name, topic_id=topic.topic_id)
            found[topic] = entry
        epoch, goes = DELETED, delete
        image = state.topics.get(topic.name)
        if image is not None and image.topic_id == topic.topic_id:
            if index >= len(image.partitions):  # it has retired, but the topic exists
                entry.partition_states.append(
                    StopReplicaPartition(partition_index=index, delete_partition=delete)
                )
                continue
            partition = image.partitions[index]
            epoch = partition.leader_epoch
            goes = delete and node not in partition.replicas
        entry.partition_states.append(
            StopReplicaPartition(partition_index=index, leader_epoch=epoch, delete_partition=goes)
        )
    return list(found.values())


def live_brokers(state: ControllerState) -> list[UpdateMetadataBroker]:
    """All live brokers."""
    return [
        UpdateMetadataBroker(
            id=broker.node_id,
            endpoints=[
                UpdateMetadataEndpoint(port=end.port, host=end.host, listener=end.listener)
                for end in broker.endpoints
            ],
            rack=broker.rack,
            epoch=broker.epoch,
        )
        for broker in state.brokers.values()
    ]


def live_leaders(state: ControllerState, topics: Iterable[LeaderAndIsrTopic]) -> list[LiveLeader]:
    """The addresses of the leaders of these partitions, for their followers."""
    leaders = {each.leader for topic in topics for each in topic.partition_states}
    return [
        LiveLeader(
            broker_id=node, host_name=broker.endpoints[0].host, port=broker.endpoints[0].port
        )
        for node in sorted(leaders - {NO_LEADER})
        if (broker := state.brokers.get(node)) is not None
    ]


def without_epochs(request: Message) -> None:
    """Remove fields that older inter.broker.protocol.versions do not have: partition epochs
    (KIP-232) and the number of partitions (KIP-253).
    """
    if isinstance(request, LeaderAndIsrRequest):
        for topic in request.topic_states:
            topic.partition_count = topic.retired_from = UNKNOWN
            for state in topic.partition_states:
                state.partition_epoch = UNKNOWN
    elif isinstance(request, UpdateMetadataRequest):
        request.max_partition_epoch = UNKNOWN
        for known in request.topic_states:
            known.retired_from = known.retired_epoch = known.partition_total = UNKNOWN
            known.retired_partition_epoch = UNKNOWN
            known.retirement_holds = False
            for row in known.partition_states:
                row.partition_epoch = UNKNOWN
