"""The rules for topics: names, partition counts, replicas and settings, with Kafka's error for each
violation.

It plans topics, and creates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.metadata.replica_assignment import assign_replicas
from kstore.config import TOPIC_CONFIGS, ConfigDef
from kstore.config.nearest import did_you_mean
from kstore.config.topic_configs import (
    INTERNAL_SEGMENT_BYTES,
    is_on,
)
from kstore.errors import ErrorCode

__all__ = [
    "NewPartitions",
    "NewTopic",
    "TopicError",
    "check_configs",
    "check_name",
    "is_legal_name",
    "is_on",
    "no_topic",
    "plan_partitions",
    "plan_topic",
    "topic_row",
]

MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 10_000
CLUSTER_METADATA = "__cluster_metadata"
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicError(Exception):
    """Why a topic cannot be created, changed or deleted: Kafka's error code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class NewTopic(NamedTuple):
    """A topic that a client requests. -1 means the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class NewPartitions(NamedTuple):
    """A new partition count that a client requests for an existing topic. A smaller count is
    refused unless the client requests a contraction.
    """

    name: str
    total_count: int
    assignments: Sequence[Sequence[int]] | None = None
    may_shrink: bool = False


def no_topic(name: str) -> TopicError:
    """The error that no topic has this name."""
    return TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")


def check_name(name: str) -> None:
    """Raise TopicError unless a topic, and its folder, may have this name."""
    problem = _name_problem(name)
    if problem:
        raise TopicError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"A topic can't be called {name[:300]!r}: {problem}."
        )


def is_legal_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return not _name_problem(name)


def _name_problem(name: str) -> str:
    problem = ""
    if not name:
        problem = "it is empty"
    elif name in {".", ".."}:
        problem = "file systems use it for a folder"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"it has {len(name)} characters, and the limit is {MAX_NAME_LENGTH}"
    elif not LEGAL_NAME.match(name):
        problem = "use ASCII letters, digits, '.', '_' and '-'"
    return problem


def plan_topic(
    image: MetadataImage,
    new: NewTopic,
    *,
    default_partitions: int,
    default_replicas: int,
    start: int = 0,
) -> tuple[tuple[int, ...], ...]:
    """The replicas of each partition of a new topic. ``start`` is as in `assign_replicas`. Raises
    TopicError.
    """
    check_name(new.name)
    if new.name == CLUSTER_METADATA:
        raise TopicError(
            ErrorCode.INVALID_REQUEST,
            f"'{new.name}' is the name of Kafka's own log of metadata; choose a different one.",
        )
    if new.name in image.topics:
        raise TopicError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{new.name}' already exists. Choose a different name.",
        )
    _check_collision(image, new.name)
    if new.assignments:
        if new.num_partitions != -1 or new.replication_factor != -1:
            raise TopicError(
                ErrorCode.INVALID_REQUEST,
                f"'{new.name}' has replicas by partition and a count of partitions or replicas "
                "too; leave the counts at -1.",
            )
        return _assigned(image, new.assignments)
    count = default_partitions if new.num_partitions == -1 else new.num_partitions
    if count <= 0:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic can't have {count} partitions; ask for 1 or more, or -1 for the default.",
        )
    _check_count(count)
    return _spread(image, count, new.replication_factor, default_replicas, start)


def plan_partitions(
    image: MetadataImage, new: NewPartitions, *, start: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The replicas of the partitions to add to a topic. Raises TopicError."""
    topic = image.topics.get(new.name)
    if topic is None:
        raise no_topic(new.name)
    have = len(topic.partitions)
    if new.total_count <= have:
        # Kafka's text, which scripts look for, comes first.
        problem = f"Topic already has {have} partition(s)."
        if new.total_count < have:
            problem = (
                f"The topic {new.name} currently has {have} partition(s); {new.total_count} would"
                " not be an increase."
            )
        raise TopicError(ErrorCode.INVALID_PARTITIONS, f"{problem} Ask for more than {have}.")
    _check_count(new.total_count)
    if new.assignments is None:
        factor = len(topic.partitions[0].replicas)
        return _spread(image, new.total_count - have, factor, 1, start)
    if len(new.assignments) != new.total_count - have:
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"'{new.name}' gets {new.total_count - have} more partitions, but replicas are given "
            f"for {len(new.assignments)}; give them for each, or for none.",
        )
    width = len(topic.partitions[0].replicas)
    return _assigned(image, dict(enumerate(new.assignments, have)), have, width)


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a topic as text. Raises TopicError for an unknown name or an invalid
    value.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        row = topic_row(name)
        if row is None:
            sentence = f"Topics have no setting '{name}'{did_you_mean(name, TOPIC_CONFIGS) or '.'}"
            raise TopicError(ErrorCode.INVALID_CONFIG, sentence)
        if value is None:
            raise TopicError(
                ErrorCode.INVALID_CONFIG, f"{name} has no value; give one, or leave it out."
            )
        problem = row.complaint(value)
        if problem is not None:
            raise TopicError(ErrorCode.INVALID_CONFIG, problem)
        checked[name] = value
    _check_together(checked)
    return checked


def topic_row(name: str) -> ConfigDef | None:
    """The row of a topic setting, including the internal one."""
    return (
        INTERNAL_SEGMENT_BYTES if name == INTERNAL_SEGMENT_BYTES.name else TOPIC_CONFIGS.get(name)
    )


def _check_together(configs: Mapping[str, str]) -> None:
    if is_on(configs, "remote.storage.enable"):
        raise TopicError(
            ErrorCode.INVALID_CONFIG,
            "remote.storage.enable can't be true: kstore keeps logs only on its own disks.",
        )
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if low in configs and high in configs and int(configs[low]) > int(configs[high]):
        raise TopicError(
            ErrorCode.INVALID_CONFIG,
            f"{low}={configs[low]} is more than {high}={configs[high]}; lower the first or raise "
            "the second.",
        )


def _check_count(count: int) -> None:
    if count > MAX_PARTITIONS:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions are too many: a topic can have at most {MAX_PARTITIONS}.",
        )


def _check_collision(image: MetadataImage, name: str) -> None:
    """Raise TopicError if another topic's name differs only in '.' and '_', which are the same in
    metric names.
    """
    if "." not in name and "_" not in name:
        return
    plain = name.replace(".", "_")
    for other in image.topics:
        if other.replace(".", "_") == plain:
            raise TopicError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Metrics could not distinguish '{name}' from the topic '{other}', because they "
                f"write '.' as '_'; choose another name.",
            )


def _spread(
    image: MetadataImage, count: int, replication_factor: int, default: int, start: int
) -> tuple[tuple[int, ...], ...]:
    replicas = default if replication_factor == -1 else replication_factor
    brokers = image.brokers
    if replicas <= 0:
        raise TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A partition can't have {replicas} replicas; ask for 1 or more, or -1 for the "
            "default.",
        )
    lacking = max(replicas - len(brokers), 0)
    down = sorted(_down(image)) if brokers and lacking else []
    if len(down) < lacking:
        raise TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): brokers known: "
            f"{len(brokers) + len(down)}. Ask for no more replicas than that.",
        )
    found = assign_replicas(brokers.values(), count, replicas - lacking, start=start)
    if not lacking:
        return found
    # Down brokers take turns, since one of them may never return.
    turns = tuple(
        tuple(down[(first + step) % len(down)] for step in range(lacking))
        for first in range(len(down))
    )
    return tuple((*each, *turns[i % len(turns)]) for i, each in enumerate(found, start))


def _down(image: MetadataImage) -> set[int]:
    """The brokers of existing replicas that are not alive. They become followers once they are
    back.
    """
    replicas = (part.replicas for topic in image.topics.values() for part in topic.partitions)
    return set().union(*set(replicas)).difference(image.brokers)


def _assigned(
    image: MetadataImage,
    assignments: Mapping[int, Sequence[int]],
    first: int = 0,
    width: int | None = None,
) -> tuple[tuple[int, ...], ...]:
    """``width``: the number of replicas that the partitions before ``first`` have."""
    indexes = range(first, first + len(assignments))
    missing = next((index for index in indexes if index not in assignments), None)
    if missing is not None:
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partition {missing} has no replicas; number partitions from 0 without a gap.",
        )
    width, up = width or len(assignments[0]), set(image.brokers)
    named = {broker for replicas in assignments.values() for broker in replicas}
    known = up if named <= up else up | _down(image)
    for index, replicas in assignments.items():
        problem = ""
        if not replicas:
            problem = "name at least one broker"
        elif len(set(replicas)) != len(replicas):
            problem = "name each broker once"
        elif not set(replicas) <= known:
            problem = f"the brokers are {sorted(known)}"
        elif up.isdisjoint(replicas):
            problem = "none of them is up"
        elif len(replicas) != width:
            problem = f"partition 0 has {width} of them, and all partitions need the same number"
        if problem:
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} can't have the replicas {list(replicas)}: {problem}.",
            )
    return tuple(tuple(assignments[index]) for index in indexes)
