"""Creates a backup: copies sealed data, notes the ends of all logs, and copies the rest up to a
consistent point.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kstore.backup.capture import BrokerLogs, Captured, GoneError, capture, many_files
from kstore.backup.cut import Transactions, consistent_end, end_of_commits
from kstore.backup.errors import BackupError
from kstore.backup.folder import BackupFolder
from kstore.backup.manifest import BrokerFiles, Manifest, PartitionBackup, write_manifest
from kstore.backup.objects import Part, telling_full
from kstore.backup.segments import KnownSegments, copy_partition, copy_sealed
from kstore.backup.source import Layout, Placed, Source, cluster_id_of, layout_of
from kstore.backup.tails import (
    OFFSETS_TOPIC,
    SHARES_TOPIC,
    TRANSACTIONS_TOPIC,
    read_transactions,
    tail_of,
)
from kstore.backup.tree import pack_tree, without_topics
from kstore.log import Log
from kstore.log.segments.segment_names import CURSORS_FOLDER
from kstore.log.snapshot import queue_states
from kstore.log.transactions.journal import JOURNAL_NAME
from kstore.types import TopicPartition

__all__ = ["create"]

TRIES = 20
GROUPS_TOPICS = {OFFSETS_TOPIC, SHARES_TOPIC}
COORDINATORS_TOPICS = {TRANSACTIONS_TOPIC, *GROUPS_TOPICS}
META = "meta.properties"
PROPERTIES = "server.properties"
Tell = Callable[[int], None]


def create(folder: BackupFolder, source: Source, version: str, tell: Tell) -> Manifest:
    """Create a backup; ``tell`` is called repeatedly with the number of copied bytes. Raises
    BackupError; the earlier backups are then unchanged.
    """
    earlier = "earlier backups are intact. Free some space, or delete old backups"
    with folder.writing(), telling_full(folder.path, earlier), ExitStack() as stack:
        stack.enter_context(many_files())
        run = _Run(folder, source, version, tell)
        for broker in source.brokers:
            run.logs[broker.node_id] = stack.enter_context(closing(BrokerLogs(broker)))
        stack.callback(run.close)
        return run.make()


@dataclass
class _Noted:
    """A log's ends by broker, and the files of one of them."""

    placed: Placed
    low: tuple[int, int]
    """Everything before this, a segment's base offset and a position, existed before the moment."""
    captured: Captured
    ends: dict[int, int]
    queues: dict[str, Part]


@dataclass
class _Run:
    folder: BackupFolder
    source: Source
    version: str
    tell: Tell
    logs: dict[int, BrokerLogs] = field(default_factory=dict)
    noted: dict[TopicPartition, _Noted] = field(default_factory=dict)
    noted_ms: int = 0
    gone: set[str] = field(default_factory=set)
    """Topics whose files disappeared while they were read."""

    def __post_init__(self) -> None:
        self.begun_ms = time.time_ns() // 1_000_000
        self.pool = self.folder.pool
        self.before = self.folder.newest_good()
        self.known = KnownSegments(self.pool, self.before)
        self.preferred = {
            each.key: each.source for each in (self.before.partitions if self.before else ())
        }

    def close(self) -> None:
        """Close all files."""
        for each in self.noted.values():
            each.captured.close()

    def make(self) -> Manifest:
        """Create the whole backup."""
        self._copy_ahead()
        files = self._note_all()
        tree = self._tree()
        layout = layout_of(self.source, tree)
        ends = self._ends(layout)
        partitions = []
        for key, each in sorted(self.noted.items()):
            if key in ends:
                with self._noting_gone(key):
                    partitions.append(self._copied(key, each, ends[key]))
        gone = self.gone
        if gone:
            tree = self._without_deleted(tree, gone)
        self._refuse_missing(key for key in layout if key.topic not in gone)
        return self._finished(tree, files, [each for each in partitions if each.topic not in gone])

    @contextmanager
    def _noting_gone(self, key: TopicPartition) -> Iterator[None]:
        """Note a topic whose files disappeared; it is checked later whether it was deleted."""
        try:
            yield
        except (GoneError, FileNotFoundError):
            self.gone.add(key.topic)

    def _tree(self) -> Mapping[str, bytes] | None:
        return None if self.source.read_tree is None else self.source.read_tree()

    def _replicas(self, key: TopicPartition, placed: Placed) -> dict[int, Log]:
        found = {}
        for node_id in placed.isr:
            log = self.logs[node_id].log(key) if node_id in self.logs else None
            if log is not None:
                found[node_id] = log
        return found

    def _chosen(self, key: TopicPartition, found: Mapping[int, Log]) -> int:
        """The replica to copy from: the same as last time, if it is in sync."""
        node_id = self.preferred.get(key, -1)
        if node_id not in found:
            node_id = self.preferred[key] = next(iter(found))
        return node_id

    def _copy_ahead(self) -> None:
        """Copy sealed data first, which may take long, so that the moment is short."""
        for key, placed in layout_of(self.source, self._tree()).items():
            found = self._replicas(key, placed)
            if not found:
                continue
            node_id = self._chosen(key, found)
            with self._noting_gone(key):
                captured = capture(found[node_id], node_id, self.known.has_all)
                try:
                    upto = min([captured.end, *(log.log_end_offset for log in found.values())])
                    copy_sealed(captured, upto, self.known, self.pool, self.tell)
                finally:
                    captured.close()

    # -- the moment

    def _note_all(self) -> dict[int, dict[str, Part]]:
        """Note the ends of all logs; repeat if a transaction over several embedded logs was in
        progress. Returns the brokers' own files.
        """
        for _ in range(TRIES):
            layout = layout_of(self.source, self._tree())
            lows = {}
            for key, placed in layout.items():
                for log in self._replicas(key, placed).values():
                    with self._noting_gone(key):
                        log.refresh()
                        active = log.core.segments[-1]
                        lows[key, log.path] = active.base_offset, active.size_bytes
            journals = self._journals()
            self._note(layout, lows, lambda topic: topic == TRANSACTIONS_TOPIC)
            self.noted_ms = time.time_ns() // 1_000_000
            files = self._broker_files()
            self._note(layout, lows, lambda topic: topic in GROUPS_TOPICS)
            self._note(layout, lows, lambda topic: topic not in COORDINATORS_TOPICS)
            if self._journals() == journals:
                return files
            self.close()
            self.noted.clear()
        raise BackupError(
            f"transactions over several logs were under way during each of {TRIES} tries: try "
            "again when the writing process has less to do"
        )

    def _note(
        self,
        layout: Layout,
        lows: Mapping[tuple[TopicPartition, str], tuple[int, int]],
        wanted: Callable[[str], bool],
    ) -> None:
        for key, placed in layout.items():
            found = self._replicas(key, placed) if wanted(key.topic) else {}
            if found:
                with self._noting_gone(key):
                    self._note_one(key, placed, found, lows)

    def _note_one(
        self,
        key: TopicPartition,
        placed: Placed,
        found: Mapping[int, Log],
        lows: Mapping[tuple[TopicPartition, str], tuple[int, int]],
    ) -> None:
        node_id = self._chosen(key, found)
        log = found[node_id]
        queues = {name: self.pool.put([data]) for name, data in queue_states(log.path).items()}
        known = None if key.topic == TRANSACTIONS_TOPIC else self.known.has_all
        captured = capture(log, node_id, known)
        ends = {
            node: captured.end if node == node_id else other.log_end_offset
            for node, other in found.items()
        }
        low = lows.get((key, log.path), (0, 0))
        self.noted[key] = _Noted(placed, low, captured, ends, queues)

    def _journals(self) -> list[bytes]:
        paths = [Path(each) / JOURNAL_NAME for b in self.source.brokers for each in b.log_dirs]
        return [path.read_bytes() if path.exists() else b"" for path in paths]

    def _broker_files(self) -> dict[int, dict[str, Part]]:
        """Settings, the identity of log dirs, committed cursors, and decided transactions over
        several logs.
        """
        found: dict[int, dict[str, Part]] = {}
        for broker in self.source.brokers:
            paths: dict[str, Path] = {}
            for log_dir in map(Path, broker.log_dirs):
                names = [META, JOURNAL_NAME]
                cursors = log_dir / CURSORS_FOLDER
                if cursors.is_dir():
                    names += [f"{CURSORS_FOLDER}/{name}" for name in sorted(os.listdir(cursors))]
                paths |= {name: log_dir / name for name in names if (log_dir / name).is_file()}
            found[broker.node_id] = {
                name: self.pool.put([path.read_bytes()]) for name, path in paths.items()
            }
            if broker.properties is not None:
                found[broker.node_id][PROPERTIES] = self.pool.put([broker.properties])
        return found

    # -- consistent ends

    def _ends(self, layout: Layout) -> dict[TopicPartition, int]:
        """The end of each log in the backup. Logs of topics that were deleted meanwhile are not
        included.
        """
        ends = {}
        for key, each in self.noted.items():
            placed = layout.get(key)
            if placed is not None and placed.topic_id == each.placed.topic_id:
                # A replica that stayed in sync has everything that was committed.
                stayed = [end for node, end in each.ends.items() if node in placed.isr]
                ends[key] = min(stayed or each.ends.values())
        transactions = Transactions()
        for key in ends:
            if key.topic == TRANSACTIONS_TOPIC:
                read_transactions(self.noted[key].captured, ends[key], transactions)
        for key in ends:
            if key.topic != TRANSACTIONS_TOPIC:
                each = self.noted[key]
                tail = tail_of(each.captured, each.low)
                with self._noting_gone(key):
                    ends[key] = consistent_end(key, ends[key], tail, transactions)
        for key in ends:
            if key.topic == OFFSETS_TOPIC:
                each = self.noted[key]
                tail = tail_of(each.captured, each.low, with_commits=True)
                ends[key] = end_of_commits(ends[key], tail, ends)
        return ends

    # -- the copy

    def _copied(self, key: TopicPartition, each: _Noted, end: int) -> PartitionBackup:
        start, segments = copy_partition(each.captured, end, self.known, self.pool, self.tell)
        each.captured.close()
        topic_id, replicas, _ = each.placed
        return PartitionBackup(
            *key, topic_id, replicas, each.captured.node_id, start, end, segments, each.queues
        )

    def _without_deleted(
        self, tree: Mapping[str, bytes] | None, gone: set[str]
    ) -> Mapping[str, bytes] | None:
        """The nodes, without those of topics whose files disappeared because they were deleted."""
        before = {key: placed.topic_id for key, placed in layout_of(self.source, tree).items()}
        for key, placed in layout_of(self.source, self._tree()).items():
            if key.topic in gone and before.get(key) == placed.topic_id:
                raise BackupError(
                    f"files of {key} were removed while they were copied, and its topic still "
                    "exists: check its broker's log, and try again"
                )
        return None if tree is None else without_topics(tree, gone)

    def _refuse_missing(self, keys: Iterable[TopicPartition]) -> None:
        missing = [key for key in keys if key not in self.noted]
        layout = layout_of(self.source, self._tree()) if missing else {}
        for key in missing:
            placed = layout.get(key)
            # A topic that was just created may be empty in the backup.
            if placed is not None and not self._replicas(key, placed):
                raise BackupError(
                    f"{key} has no log in the folders of brokers {sorted(self.logs)}: its replicas "
                    f"in sync are on {list(placed.isr)}. Give the folders of all brokers"
                )

    def _finished(
        self,
        tree: Mapping[str, bytes] | None,
        files: Mapping[int, Mapping[str, Part]],
        partitions: list[PartitionBackup],
    ) -> Manifest:
        moment = datetime.fromtimestamp(self.noted_ms / 1000, UTC)
        manifest = Manifest(
            name=moment.strftime("%Y%m%dT%H%M%S.") + f"{self.noted_ms % 1000:03d}Z",
            kind=self.source.kind,
            version=self.version,
            begun_ms=self.begun_ms,
            noted_ms=self.noted_ms,
            cluster_id=cluster_id_of(tree),
            tree=None if tree is None else self.pool.put([pack_tree(tree)]),
            brokers=tuple(BrokerFiles(node_id, rows) for node_id, rows in files.items()),
            partitions=tuple(partitions),
            new_bytes=self.pool.written_bytes,
        )
        self.pool.sync()
        write_manifest(self.folder.path, manifest)
        return manifest
