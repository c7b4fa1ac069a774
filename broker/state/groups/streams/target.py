"""The target assignment of a streams group: its input, when it is computed, and its records."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext
from kstore.broker.state.groups.streams.assignor import MemberSpec, assign_tasks
from kstore.broker.state.groups.streams.group import StreamsGroup, StreamsMember
from kstore.broker.state.groups.streams.records import target_epoch_record, target_record
from kstore.broker.state.groups.streams.tasks import NO_TASKS, Tasks
from kstore.broker.state.groups.streams.topics import ConfiguredTopology, configure_topology
from kstore.broker.state.groups.streams.topology import Topology
from kstore.broker.state.groups.timers import has_passed
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import Work

__all__ = [
    "TargetAssignment",
    "assignment_configs",
    "assignment_is_due",
    "compute_target",
    "configured_topology",
    "metadata_hash",
]

STANDBY_REPLICAS = "num.standby.replicas"
HASH_BYTES = 8


class TargetAssignment(NamedTuple):
    """A target assignment, its epoch, and the records of the changes."""

    epoch: int
    tasks: Mapping[str, Tasks]
    records: tuple[GroupRecord, ...] = ()


def assignment_configs(ctx: GroupContext) -> dict[str, str]:
    """The settings of the assignor, which are stored with the group's epoch."""
    return {STANDBY_REPLICAS: str(ctx.configs["streams.num.standby.replicas"])}


def assignment_is_due(group: StreamsGroup, ctx: GroupContext) -> bool:
    """Whether enough time has passed since the target assignment was last computed."""
    interval_ms: int = ctx.configs["streams.assignment.interval.ms"]
    assigned_ms = group.assignment_timestamp
    return not assigned_ms or has_passed(interval_ms, assigned_ms, ctx.now_ms)


def compute_target(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    epoch: int,
    configs: Mapping[str, str],
    now_ms: int,
) -> Work[TargetAssignment]:
    """The target assignment for a group epoch. It is empty while the topics are not ready."""
    if configured.is_ready:
        specs = {
            member_id: MemberSpec(member.process_id, group.targets.get(member_id, NO_TASKS))
            for member_id, member in members.items()
        }
        replicas = int(configs.get(STANDBY_REPLICAS, "0"))
        tasks = yield from assign_tasks(specs, configured.subtopologies or {}, replicas)
    else:
        tasks = dict.fromkeys(members, NO_TASKS)
    records: list[GroupRecord] = []
    for member_id, assigned in tasks.items():
        if group.targets.get(member_id) != assigned:
            records.append(target_record(group.group_id, member_id, assigned))
        yield
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return TargetAssignment(epoch, tasks, tuple(records))


def configured_topology(topology: Topology, image: MetadataImage) -> ConfiguredTopology:
    """The topology matched with the topics of the image. Raises StreamsError if it can never
    work.
    """
    sizes = {
        name: len(image.topics[name].partitions)
        for name in topology.required_topics
        if name in image.topics
    }
    return configure_topology(topology, sizes)


def metadata_hash(topology: Topology, image: MetadataImage) -> int:
    """A hash that changes when one of the topology's topics is created, deleted or expanded. 0
    while none exists.
    """
    found = [image.topics[name] for name in sorted(topology.required_topics & image.topics.keys())]
    if not found:
        return 0
    digest = blake2b(digest_size=HASH_BYTES)
    for topic in found:
        digest.update(topic.topic_id.bytes)
        digest.update(f"{topic.name}:{len(topic.partitions)};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
