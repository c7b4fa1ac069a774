"""Verifies a backup, and restores it to a new folder: every part by its SHA-256, every batch by its
CRC and its offsets. The folder gets its name when everything is durable.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from kstore.backup.errors import BackupError
from kstore.backup.folder import BackupFolder
from kstore.backup.manifest import Manifest, PartitionBackup, SegmentBackup
from kstore.backup.objects import ObjectPool, Part, telling_full
from kstore.backup.settings import restored_settings
from kstore.backup.tree import unpack_tree
from kstore.env import SystemEnv, sync_dir
from kstore.log.local.start_offset import START_OFFSET_NAME, start_offset_line
from kstore.log.segments.segment_names import directory_name, segment_path, write_topic_id
from kstore.private_files import PRIVATE_FILE, PRIVATE_FOLDER
from kstore.record import InvalidBatchError, batches

__all__ = ["restore", "verify"]

PROPERTIES = "server.properties"
COORDINATION = "coordination"
OWN_COORDINATION = ".coordination"
PutTree = Callable[[str, Mapping[str, bytes]], None]
"""Creates a new store with the nodes in a folder."""
Tell = Callable[[int], None]


def verify(folder: BackupFolder, manifest: Manifest, tell: Tell) -> None:
    """Read a whole backup. Raises BackupError if something is missing or damaged."""
    if manifest.tree is not None:
        unpack_tree(folder.pool.bytes_of(manifest.tree))
    for broker in manifest.brokers:
        for part in broker.files.values():
            folder.pool.bytes_of(part)
    for partition in manifest.partitions:
        for part in partition.files.values():
            folder.pool.bytes_of(part)
        _check_order(partition)
        for segment in partition.segments:
            for piece in _checked(folder.pool, partition, segment):
                tell(len(piece))


def restore(
    folder: BackupFolder,
    manifest: Manifest,
    target: Path,
    put_tree: PutTree,
    tell: Tell,
    *,
    zookeeper: str | None = None,
) -> None:
    """Write a backup to ``target``, which must not exist, or be empty. Raises BackupError; then
    nothing was restored. ``zookeeper``: where ``put_tree`` creates a cluster's nodes, for the
    brokers' settings.
    """
    target = target.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(
            f"{target} is not empty: restore to a new folder, so that nothing is overwritten"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.restoring.{uuid.uuid4().hex[:8]}")
    nothing = "nothing was restored. Free some space, or restore to another disk"
    try:
        with telling_full(target, nothing):
            unfinished.mkdir(mode=PRIVATE_FOLDER)
            _Restore(folder.pool, manifest, target, unfinished, put_tree, tell, zookeeper).run()
            try:
                unfinished.rename(target)
            except OSError as error:
                raise BackupError(
                    f"{target} can't be replaced by the restored folder: {error.strerror}. Use a "
                    "new folder below it"
                ) from error
            sync_dir(target.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


class _Restore:
    def __init__(
        self,
        pool: ObjectPool,
        manifest: Manifest,
        target: Path,
        folder: Path,
        put_tree: PutTree,
        tell: Tell,
        zookeeper: str | None,
    ) -> None:
        self.pool = pool
        self.manifest = manifest
        self.target = target
        self.folder = folder
        self.put_tree = put_tree
        self.tell = tell
        self.is_cluster = manifest.kind == "cluster"
        self.places: dict[str, str] = {}
        if self.is_cluster:
            self.places = {"kstore.coordination.dir": str(target / COORDINATION)}
            if zookeeper is not None:
                self.places = {"zookeeper.connect": zookeeper}

    def run(self) -> None:
        """Write everything; it is durable on return."""
        for broker in self.manifest.brokers:
            self._make_broker(broker.node_id, broker.files)
        for partition in self.manifest.partitions:
            _check_order(partition)
            self._write_log(partition)
        if self.manifest.tree is not None:
            name = COORDINATION if self.is_cluster else OWN_COORDINATION
            nodes = unpack_tree(self.pool.bytes_of(self.manifest.tree))
            self.put_tree(str(self.folder / name), nodes)
        for root, _, _ in os.walk(self.folder, topdown=False):
            sync_dir(Path(root))

    def _data(self, node_id: int) -> Path:
        return self.folder / f"broker{node_id}" / "data" if self.is_cluster else self.folder

    def _make_broker(self, node_id: int, own: Mapping[str, Part]) -> None:
        data = self._data(node_id)
        data.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        for name, part in own.items():
            content = self.pool.bytes_of(part)
            if name == PROPERTIES:
                final = self.target / data.relative_to(self.folder)
                content = restored_settings(content, {"log.dirs": str(final)} | self.places)
                place = data.parent if self.is_cluster else data
                _write(place / name, [content])
            else:
                (data / name).parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
                _write(data / name, [content])

    def _write_log(self, partition: PartitionBackup) -> None:
        """Write to all replicas at once: they are equal, byte for byte."""
        name = directory_name(partition.key)
        nodes = partition.replicas if self.is_cluster else (partition.source,)
        known = {broker.node_id for broker in self.manifest.brokers}
        folders = [self._data(node_id) / name for node_id in nodes if node_id in known]
        for folder in folders:
            folder.mkdir(mode=PRIVATE_FOLDER)
            if partition.topic_id is not None:
                write_topic_id(
                    SystemEnv().fs, str(folder), uuid.UUID(partition.topic_id), durable=True
                )
            _write(folder / START_OFFSET_NAME, [start_offset_line(partition.start)])
            for file, part in partition.files.items():
                _write(folder / file, [self.pool.bytes_of(part)])
        for segment in partition.segments:
            paths = [Path(segment_path(str(folder), segment.base_offset)) for folder in folders]
            pieces = _checked(self.pool, partition, segment)
            _write_all(paths, self._counted(pieces))

    def _counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.tell(len(piece))
            yield piece


def _check_order(partition: PartitionBackup) -> None:
    """Each segment must end before the next one begins."""
    expected = 0
    for segment in partition.segments:
        if segment.base_offset < expected or segment.next_offset < segment.base_offset:
            raise BackupError(
                f"{partition.key} overlaps itself at offset {segment.base_offset}: this backup "
                "can't be used. Take another one"
            )
        expected = segment.next_offset


def _checked(
    pool: ObjectPool, partition: PartitionBackup, segment: SegmentBackup
) -> Iterator[bytes]:
    """A segment's content. Raises BackupError for a wrong part, or a wrong or misplaced batch."""
    expected, left = segment.base_offset, b""
    for part in segment.parts:
        for piece in pool.read(part):
            data = left + piece
            done = 0
            try:
                for view in batches(data, verify=True):
                    if not expected <= view.base_offset < view.next_offset <= segment.next_offset:
                        raise BackupError(
                            f"{partition.key} has offset {view.base_offset} where "
                            f"{expected} was expected: this backup can't be used. Take another one"
                        )
                    expected = view.next_offset
                    done = view.position + view.size_bytes
            except InvalidBatchError as error:
                raise BackupError(
                    f"{partition.key} has a damaged batch after offset {expected - 1}: {error}. "
                    "This backup can't be used: take another one"
                ) from error
            left = data[done:]
            yield piece
    if left or expected != segment.next_offset:
        raise BackupError(
            f"{partition.key} ends at offset {expected} in the segment {segment.base_offset}, and "
            f"{segment.next_offset} was expected: this backup can't be used. Take another one"
        )


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    _write_all([path], pieces)


def _write_all(paths: Sequence[Path], pieces: Iterable[bytes]) -> None:
    """Write the same to new files; it is durable on return."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with ExitStack() as stack:
        files: list[BinaryIO] = [
            stack.enter_context(open(os.open(path, flags, PRIVATE_FILE), "wb")) for path in paths
        ]
        for piece in pieces:
            for file in files:
                file.write(piece)
        for file in files:
            file.flush()
            os.fsync(file.fileno())
