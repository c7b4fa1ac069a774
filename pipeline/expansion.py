"""Decides which partitions of an expanded topic a streaming read must not read yet, so that earlier
partitions are read first (KIP-253), and warns the user if that is unknown.

stream_reader.py uses it to decide what a micro-batch reads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping

from kstore.clients.core.group.expansion_gate import PriorEpoch
from kstore.pipeline.planning import is_held_back
from kstore.pipeline.read_options import EARLIEST
from kstore.pipeline.topic_client import TopicClient
from kstore.types import TopicPartition

__all__ = ["Expansion"]

TELL_EVERY_S = 60
_STUCK = (
    "not read yet, because no broker reported which records must be read before them. Check that"
    " the brokers and their coordination store answer. Option kstore.orderedExpansion=false reads"
    " them at once, without the order of their keys"
)


class Expansion:
    """Which new partitions must wait. It remembers the brokers' answers, which do not change."""

    def __init__(self, client: TopicClient, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock_s = clock_s
        self._priors: dict[TopicPartition, list[PriorEpoch]] = {}
        self._thresholds: dict[PriorEpoch, int] = {}
        self._begun: set[TopicPartition] = set()
        self._told_s: dict[TopicPartition, float] = {}
        """When the last warning about a partition was printed."""

    def held_back(
        self, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """The partitions that nobody has read from and whose prior partitions have not been read up
        to their ends at the expansion. The first partition of a topic has no prior ones.
        """
        wanted = {tp for tp in ends if tp.partition > 0} - self._begun
        self._learn(wanted)
        waiting = {tp for tp in wanted if self._priors.get(tp, [])}
        starts = self._starts(waiting)
        self._begun |= {tp for tp in wanted if tp in self._priors} - waiting
        self._begun |= {tp for tp in waiting if begin[tp] > starts[tp]}
        waiting -= self._begun
        priors = {tp: self._priors[tp] for tp in waiting}
        read = {tp: max(offset, starts.get(tp, 0)) for tp, offset in begin.items()}
        held = {tp for tp in waiting if is_held_back(priors[tp], self._thresholds, read)}
        unknown = {tp for tp in wanted if tp not in self._priors}
        without_threshold = {
            tp for tp in held
            if any(each not in self._thresholds for each in priors[tp] if each.partition in read)
        }  # fmt: skip
        self._warn(unknown | without_threshold)
        return held | unknown

    def _warn(self, stuck: set[TopicPartition]) -> None:
        """Warn of partitions for which no broker knows the prior partitions: at once for each, and
        then once a minute.
        """
        now_s = self._clock_s()
        due = {
            tp for tp in stuck if now_s - self._told_s.get(tp, float("-inf")) >= TELL_EVERY_S
        }  # fmt: skip
        self._told_s |= dict.fromkeys(due, now_s)
        for topic in sorted({tp.topic for tp in due}):
            numbers = ", ".join(str(tp.partition) for tp in sorted(due) if tp.topic == topic)
            print(f"kstore: topic {topic}, partitions {numbers}: {_STUCK}", file=sys.stderr)

    def _learn(self, wanted: Collection[TopicPartition]) -> None:
        """Request prior partitions and thresholds that are not known yet."""
        self._priors |= self._client.priors([tp for tp in wanted if tp not in self._priors])
        missing = {
            prior
            for tp in wanted
            for prior in self._priors.get(tp, ())
            if prior not in self._thresholds
        }
        while missing:
            # A partition may be prior to several, with a different epoch for each: one at a time.
            requested = {prior.partition: prior for prior in missing}
            epochs = {tp: prior.leader_epoch for tp, prior in requested.items()}
            for tp, end in self._client.epoch_ends(epochs).items():
                self._thresholds[requested[tp]] = end.end_offset
            missing -= set(requested.values())

    def _starts(self, waiting: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start offsets of waiting partitions and of their prior ones: records below can't be
        read any more.
        """
        requested = set(waiting)
        for tp in waiting:
            requested |= {prior.partition for prior in self._priors[tp]}
        found = self._client.offsets(dict.fromkeys(requested, EARLIEST))
        return {tp: row.offset for tp, row in found.items()}
