"""The rules for contractions (KIP-253): when they are allowed, how long they may take, and the
errors. A cluster (runtime/controller/shrinking.py) and a single broker
(runtime/topics/standalone_topics.py) use the same rules.
"""

from __future__ import annotations

from collections.abc import Collection

from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, TopicError, no_topic
from kstore.config.topic_configs import COUNT_REQUIRED, MIRROR, ORDERED_EXPANSION, is_on
from kstore.errors import ErrorCode

__all__ = [
    "ASK_AGAIN_S",
    "LOOK_S",
    "RETENTION_CHECK",
    "TIMEOUT",
    "behind_words",
    "check_contraction",
    "check_no_other_contraction",
    "deleted_meanwhile",
    "keeps_its_partitions",
    "left_ms",
    "records_left",
    "shrinks_yet",
]

TIMEOUT = "kstore.expansion.timeout.ms"
RETENTION_CHECK = "log.retention.check.interval.ms"
LEAST_LEFT = 1 / 4
"""The fraction of the time that a new controller, or a restarted broker, has at least for a
change.
"""
ASK_AGAIN_S = 0.1
"""How often coordinators are asked which groups are behind."""
LOOK_S = 1.0
"""How often the retired partitions are checked: they are deleted when they are empty."""
MOST_NAMED = 5
"""How many groups a message names."""


def left_ms(timeout_ms: int, begun_ms: int, now_ms: int) -> float:
    """How much time is left for a change that was prepared at ``begun_ms``. Clocks can differ or be
    set, so the result is at least LEAST_LEFT of the time, and at most all of it.
    """
    return min(max(timeout_ms + begun_ms - now_ms, timeout_ms * LEAST_LEFT), timeout_ms)


def check_contraction(image: MetadataImage, new: NewPartitions, cleanup_policy: str) -> None:
    """Raise TopicError unless a topic may get fewer partitions. ``cleanup`` is the policy of topics
    that set none.
    """
    topic = image.topics.get(new.name)
    if topic is None:
        raise no_topic(new.name)
    have = len(topic.partitions)
    if new.total_count >= have:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if new.total_count < 1:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"'{new.name}' can't shrink to {new.total_count} partitions: the minimum is 1.",
        )
    if new.assignments is not None:
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"'{new.name}' shrinks from {have} partitions: there are no new ones to assign.",
        )
    problem = ""
    if not is_on(topic.configs, COUNT_REQUIRED):
        problem = (
            f"needs {COUNT_REQUIRED}=true, or other producers continue with its old partitions"
        )
    elif not is_on(topic.configs, ORDERED_EXPANSION):
        problem = f"needs {ORDERED_EXPANSION}=true, so that groups read the old partitions first"
    elif "compact" in topic.configs.get("cleanup.policy", cleanup_policy):
        problem = "needs cleanup.policy=delete: a compacted partition never becomes empty"
    elif is_on(topic.configs, MIRROR):
        problem = f"is an exact copy ({MIRROR}=true), which shrinks with its source"
    if problem:
        raise TopicError(ErrorCode.POLICY_VIOLATION, f"To shrink, '{new.name}' {problem}.")


def check_no_other_contraction(name: str, first: int, requested: int) -> None:
    """Raise TopicError if ``requested`` differs from ``first``, the number of partitions of a
    contraction in progress.
    """
    if first != requested:
        raise TopicError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"'{name}' is already shrinking to {first} partitions: try again when the others are"
            " deleted.",
        )


def shrinks_yet(name: str, first: int, have: int) -> TopicError:
    """The error for an expansion of a topic with retired partitions."""
    return TopicError(
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        f"'{name}' is shrinking to {first} partitions: it can grow when the others, {first} to"
        f" {have - 1}, are empty by retention and deleted.",
    )


def records_left(name: str, left: Collection[int]) -> str:
    """The error if prior partitions of an earlier expansion must be read before the contraction."""
    return (
        f"'{name}' has grown, and partitions {sorted(left)} still have records from before that, "
        "which must be read before those of the retiring partitions. Try again when retention has "
        "deleted them."
    )


def behind_words(groups: Collection[str]) -> str:
    """The message about groups that are behind; "" if there are none."""
    if not groups:
        return ""
    some = ", ".join(sorted(groups)[:MOST_NAMED])
    more = f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else ""
    return f"groups have not committed all records of the retiring partitions ({some}{more})"


def keeps_its_partitions(name: str, have: int, why: str, timeout_ms: int) -> str:
    """The message that a contraction was rolled back."""
    return (
        f"'{name}' keeps its {have} partitions: {why} within {TIMEOUT}={timeout_ms}. Try again when"
        " that is so."
    )


def deleted_meanwhile(name: str) -> TopicError:
    """The error for a change of a topic that was deleted meanwhile."""
    return TopicError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"'{name}' was deleted in the meantime."
    )
