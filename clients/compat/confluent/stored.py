"""Offsets that are stored for the next commit, by partition, and the commits: synchronous,
asynchronous, or every auto.commit.interval.ms.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import Any

from kstore.clients.compat.confluent.error import KafkaError, error_of
from kstore.clients.compat.confluent.events import Events
from kstore.clients.compat.confluent.model import TopicPartition
from kstore.clients.consumer import Consumer
from kstore.errors import KafkaError as ProtocolKafkaError
from kstore.types import TopicPartition as Pair

__all__ = ["StoredOffsets"]

_log = logging.getLogger("kstore.clients.compat")


class StoredOffsets:
    """Offsets that were stored and not committed yet. Used in the consumer's thread."""

    def __init__(self, consumer: Consumer, own: Mapping[str, Any], events: Events) -> None:
        self._consumer, self._events = consumer, events
        self.rows: dict[Pair, TopicPartition] = {}
        """The offsets of the next commit."""
        self._latest: dict[Pair, TopicPartition] = {}
        """What was last committed, or is being committed."""
        self._in_progress: dict[Pair, TopicPartition] = {}
        """Stored offsets whose asynchronous commit has no answer yet and is the last of their
        partition.
        """
        self._is_automatic: bool = own["enable.auto.commit"]
        self._interval_s = own["auto.commit.interval.ms"] / 1000
        self._due_s = time.monotonic() + self._interval_s
        self._on_commit = own["on_commit"]

    def store(self, row: TopicPartition) -> None:
        """Include an offset in the next commit."""
        self.rows[row.pair] = copy(row)  # the user may change it afterwards

    def drop(self, tp: Pair) -> None:
        """The partition was revoked."""
        self.rows.pop(tp, None)
        self._latest.pop(tp, None)
        self._in_progress.pop(tp, None)

    def pending(self) -> list[TopicPartition]:
        """Take the offsets to commit."""
        return list(self.rows.values())

    def commit_now(self, rows: Collection[TopicPartition]) -> None:
        """Commit and wait."""
        self._consumer.commit({row.pair: row.committable for row in rows})
        self._done(rows)

    def commit_soon(self, rows: Collection[TopicPartition]) -> None:
        """Commit without waiting; a later poll() calls on_commit. If it fails, the next commit has
        the stored offsets again, unless there is a later one or the partition was revoked.
        """
        if not rows:
            return
        rows = [copy(row) for row in rows]
        taken = self._done(rows)
        self._in_progress.update((row.pair, row) for row in taken)

        def ended(_offsets: object, error: Exception | None) -> None:
            for row in rows:
                if self._in_progress.get(row.pair) is row:
                    del self._in_progress[row.pair]
                if error is not None and row in taken and self._latest.get(row.pair) is row:
                    self.rows.setdefault(row.pair, copy(row))
                row.error = None if error is None else error_of(error)
            if error is not None:
                _log.warning("a commit failed: %s", error)
            self._report(None if error is None else error_of(error), rows)

        self._consumer.commit_async({row.pair: row.committable for row in rows}, ended)

    def _report(self, error: KafkaError | None, rows: Collection[TopicPartition]) -> None:
        if self._on_commit is not None:
            self._events.put(lambda: self._on_commit(error, list(rows)))

    def _done(self, rows: Iterable[TopicPartition]) -> list[TopicPartition]:
        """These are committed, or being committed; returns those that were stored. Earlier commits
        of their partitions are not repeated, even of greater offsets: the last commit counts.
        """
        taken: list[TopicPartition] = []
        for row in rows:
            self._latest[row.pair] = row
            self._in_progress.pop(row.pair, None)
            stored = self.rows.get(row.pair)
            if stored is not None and stored.offset <= row.offset:
                del self.rows[row.pair]
                taken.append(row)
        return taken

    def commit_if_due(self) -> None:
        """The automatic commit, if it is due."""
        if self._is_automatic and self.rows and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._interval_s
            self.commit_soon(self.pending())

    def commit_at_end(self, gone: Collection[Pair] | None = None) -> None:
        """The automatic commit before partitions (None: all, at the end) are revoked. It repeats
        commits of revoked partitions that have no answer yet and may fail, as librdkafka does.
        """
        if gone is None:
            self._consumer._end_commits()  # one that fails gives its offsets back
        repeated = {pair: copy(row) for pair, row in self._in_progress.items()}
        found = repeated | self.rows
        rows = [row for pair, row in found.items() if gone is None or pair in gone]
        if not self._is_automatic or not rows:
            return
        try:
            self.commit_now(rows)
        except ProtocolKafkaError as error:
            _log.warning("the last commit failed, messages may come again: %s", error)
            self._report(error_of(error), rows)
        else:
            self._report(None, rows)
