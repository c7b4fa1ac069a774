"""The partitions whose logs are in this process: which log dir holds which, opened and put into the
data plane's table.

It decides nothing about topics or leaders (topics.py does); it is the one place where the broker
opens and deletes logs.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore.broker.state.metadata.topic_rules import topic_row
from kstore.private_files import others_write
from kstore.record.compression import compression_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import TopicImage
    from kstore.log import Log, LogDir
    from kstore.log.settings import LogConfig

__all__ = ["LogManager"]

LOGGER = logging.getLogger("kstore.broker")

FUTURE_MARK = "kstore.future"
"""In the folder of a partition that is being copied from another log dir."""


class LogManager:
    """The log dirs of this broker and the partitions open in them."""

    def __init__(self, node: Node, table: PartitionTable, *, replicated: bool) -> None:
        """``replicated``: other brokers may have replicas of what is in these logs."""
        self.report = node.report
        self.table = table
        self.node_id = node.node_id
        self._config = node.config
        self._replicated = replicated
        self._dirs: list[LogDir] = []
        self._homes = _Homes()
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}

    @property
    def is_open(self) -> bool:
        """Whether `open` has been called."""
        return bool(self._dirs)

    def open(self, paths: Sequence[str]) -> None:
        """Open the log dirs, each with its lock; LogDirLockedError if another process has one."""
        from kstore.log import open_log_dir
        from kstore.log.errors import LogStorageError

        policy = self._config["kstore.flush.policy"]
        interval_ms = self._config["kstore.flush.interval.ms"]
        for path in paths:
            log_dir = open_log_dir(path, flush=policy, flush_interval_ms=interval_ms)
            problem = others_write(path)
            if problem is not None:
                LOGGER.warning("log dir: others may change records: %s", problem)
            log_dir.replicated = self._replicated
            self._dirs.append(log_dir)
        self._configure_dirs()
        self._config.watch(lambda changed: self._configure_dirs())
        for log_dir in self._dirs:
            for partition in log_dir.partitions():
                other = self._homes.get(partition)
                if other is None or self._drop_future(partition, other):
                    self._homes[partition] = log_dir
                elif not self._drop_future(partition, log_dir):
                    raise LogStorageError(
                        f"{partition} lies in both {other.path} and {log_dir.path}: remove the "
                        "one that is not wanted"
                    )
        if len(self._dirs) > 1:
            self._finish_moves()

    def _configure_dirs(self) -> None:
        self._log_configs.clear()
        for log_dir in self._dirs:
            log_dir.retention_check_ms = self._config["log.retention.check.interval.ms"]
            log_dir.producer_expiration_ms = self._config["producer.id.expiration.ms"]
            if log_dir.write_back is not None:
                log_dir.write_back.set_budget(
                    self._config["kstore.log.write.back.bytes"], self._machine_budget
                )

    def _machine_budget(self) -> int:
        from kstore.log.write_budget import machine_budget  # where little is written, nobody asks

        return machine_budget(max(len(self._dirs), 1))

    @property
    def dirs(self) -> Sequence[LogDir]:
        """The log dirs, in the order of log.dirs."""
        return self._dirs

    def found(self) -> dict[str, dict[int, UUID | None]]:
        """What lies in the log dirs: topic to partition to topic id (None where none was
        written).
        """
        topics: dict[str, dict[int, UUID | None]] = {}
        for partition, log_dir in self._homes.items():
            topics.setdefault(partition.topic, {})[partition.partition] = log_dir.topic_id(
                partition
            )
        return topics

    def add_topic(self, topic: TopicImage) -> TopicEntry:
        """Make a topic known to the data plane, without partitions."""
        entry = TopicEntry(topic.name.encode(), topic.topic_id.bytes, internal=topic.internal)
        self.table.add_topic(entry)
        return entry

    def open_partition(
        self, entry: TopicEntry, topic: TopicImage, index: int, config: LogConfig
    ) -> Partition:
        """Open (or make) the log of one partition and put it into the table."""
        image = topic.partitions[index]
        log = self.open_log(TopicPartition(topic.name, index), topic.topic_id, config)
        partition = Partition(
            entry,
            index,
            log,
            leader_id=image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
        )
        self.configure(partition, config, len(image.replicas))
        self.table.add_partition(partition)
        return partition

    def open_log(self, key: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """Open (or make) the log of one partition, which the table need not have; LogError,
        OSError.
        """
        log_dir = self._homes.get(key) or self._emptiest()
        log = log_dir.log(key.topic, key.partition, create=True, config=config, topic_id=topic_id)
        self._homes[key] = log_dir
        return log

    def places(self) -> list[TopicPartition]:
        """Every partition that has a log here, open or not."""
        return list(self._homes)

    def topic_id(self, key: TopicPartition) -> UUID | None:
        """The topic id of the log that lies here; None where there is none, or it has none."""
        log_dir = self._homes.get(key)
        return None if log_dir is None else log_dir.topic_id(key)

    def configure(self, partition: Partition, config: LogConfig, replicas: int) -> None:
        """Let a partition of so many replicas act by these settings from now on, its log too."""
        if partition.log.config is not config:
            partition.log.configure(config)
        stored = config.compression_type
        partition.configure(
            stored_codec=-1 if stored == "producer" else int(compression_for(stored).id),
            stored_level=config.compression_level,
            # More than there are replicas can't be asked for.
            min_insync_replicas=min(config.min_insync_replicas, replicas),
        )

    def delete(self, topic: str, index: int) -> None:
        """Delete one partition's log; nothing happens where there is none."""
        key = TopicPartition(topic, index)
        log_dir = self._homes.pop(key, None)
        if log_dir is not None:
            log_dir.delete(key)

    def take_away(self, topic: str, index: int) -> Callable[[], None] | None:
        """Let one partition's log be gone, but for its files: what is returned removes them, in any
        thread; None where there are none.
        """
        key = TopicPartition(topic, index)
        log_dir = self._homes.pop(key, None)
        taken = None if log_dir is None else log_dir.take_away(key)
        if log_dir is None or taken is None:
            return None
        return partial(log_dir.remove_taken, taken)

    def put_aside(self, topic: str, index: int) -> None:
        """Rename a partition's folder that belongs to no topic that is known: it may hold data."""
        key = TopicPartition(topic, index)
        log_dir = self._homes.pop(key, None)
        if log_dir is None:
            return
        old = os.path.join(log_dir.path, str(key))
        new = log_dir.put_aside(key)
        self.report(f"{old} is not of the topic {topic} that this broker knows; it is now {new}")

    # ---- moves between log dirs ----

    def mark_future(self, log_dir: LogDir, key: TopicPartition) -> None:
        """Make the partition's folder in another log dir, with the mark of an unfinished copy."""
        folder = os.path.join(log_dir.path, str(key))
        os.mkdir(folder)
        with open(os.path.join(folder, FUTURE_MARK), "xb"):
            pass

    def moved(self, key: TopicPartition, target: LogDir) -> None:
        """A partition is served from its copy in another log dir: remove the old one."""
        source, self._homes[key] = self._homes[key], target
        source.delete(key)
        os.unlink(os.path.join(target.path, str(key), FUTURE_MARK))

    def _drop_future(self, key: TopicPartition, log_dir: LogDir) -> bool:
        """Remove a copy that a move did not finish; False if this is none."""
        if not os.path.exists(os.path.join(log_dir.path, str(key), FUTURE_MARK)):
            return False
        log_dir.delete(key)
        return True

    def _finish_moves(self) -> None:
        """Where the old log of a move is gone, its copy has everything."""
        for key, log_dir in self._homes.items():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(log_dir.path, str(key), FUTURE_MARK))

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a log: the topic's own over the broker's defaults."""
        from kstore.log.settings import LogConfig

        key = frozenset(overrides.items())
        found = self._log_configs.get(key)
        if found is None:
            given = self._config.topic_defaults()
            for name, text in overrides.items():
                row = topic_row(name)  # None: of a version that knows more
                given[name] = text if row is None else row.format(row.parse(text, "topic config"))
            found = self._log_configs[key] = LogConfig.from_topic_configs(given)
        return found

    def logs(self) -> list[tuple[Partition, Log]]:
        """Every open partition with its log."""
        return [
            (partition, partition.log)
            for entry in self.table.topics()
            for partition in entry.partitions
            if partition is not None and partition.log is not None
        ]

    def close(self) -> None:
        """Flush, checkpoint and mark clean; further appends fail."""
        dirs, self._dirs = self._dirs, []
        for log_dir in dirs:
            log_dir.close()

    def _emptiest(self) -> LogDir:
        return min(self._dirs, key=self._homes.count)


class _Homes(dict[TopicPartition, "LogDir"]):
    """Which log dir has which partition, and how many each has: a new topic asks for every one of
    its partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[int, int] = {}

    def count(self, log_dir: LogDir) -> int:
        """How many partitions are in a log dir."""
        return self._counts.get(id(log_dir), 0)

    def __setitem__(self, key: TopicPartition, log_dir: LogDir) -> None:
        self._leave(self.get(key))
        super().__setitem__(key, log_dir)
        self._counts[id(log_dir)] = self.count(log_dir) + 1

    def pop(self, key: TopicPartition, default: Any = None) -> Any:
        """The log dir that had the partition, which it no longer has."""
        found = super().pop(key, default)
        self._leave(found)
        return found

    def _leave(self, log_dir: LogDir | None) -> None:
        if log_dir is not None:
            self._counts[id(log_dir)] -= 1
