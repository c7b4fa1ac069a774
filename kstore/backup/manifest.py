"""The content of one backup: its manifest, a JSON file with a checksum, which lists the parts in
the pool. A backup exists when its manifest has its final name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kstore.backup.errors import BackupError
from kstore.backup.objects import Part
from kstore.env import sync_dir
from kstore.private_files import PRIVATE_FILE
from kstore.types import TopicPartition

__all__ = [
    "FORMAT", "BrokerFiles", "Manifest", "PartitionBackup", "SegmentBackup", "SegmentOrigin",
    "read_manifest", "write_manifest",
]  # fmt: skip

FORMAT = 1
SUFFIX = ".backup"


class SegmentOrigin(NamedTuple):
    """The file that a segment was copied from, and how its copied part ends."""

    device: int
    inode: int
    tail_crc: int


class SegmentBackup(NamedTuple):
    """A segment: its parts in order. ``next_offset``: the offset after its last one."""

    base_offset: int
    next_offset: int
    parts: tuple[Part, ...]
    origin: SegmentOrigin

    @property
    def bytes(self) -> int:
        """The size of all parts."""
        return sum(part.bytes for part in self.parts)


class PartitionBackup(NamedTuple):
    """A log: its offsets [start, end)."""

    topic: str
    partition: int
    topic_id: str | None
    replicas: tuple[int, ...]
    source: int
    start: int
    end: int
    segments: tuple[SegmentBackup, ...]
    files: Mapping[str, Part]
    """The states of work queues."""

    @property
    def key(self) -> TopicPartition:
        """Its topic and partition number."""
        return TopicPartition(self.topic, self.partition)


class BrokerFiles(NamedTuple):
    """Files of a broker that belong to no log: meta.properties, server.properties, cursors."""

    node_id: int
    files: Mapping[str, Part]


@dataclass(frozen=True)
class Manifest:
    """A backup. ``kind`` is cluster, alone (a single broker) or logs (an embedded log dir).
    ``noted_ms``: the moment of its data.
    """

    name: str
    kind: str
    version: str
    begun_ms: int
    noted_ms: int
    cluster_id: str | None
    tree: Part | None
    """The coordination store's nodes, a line of JSON each."""
    brokers: tuple[BrokerFiles, ...]
    partitions: tuple[PartitionBackup, ...]
    new_bytes: int = 0
    """The number of bytes that it added to the pool."""
    path: Path = field(default=Path(), compare=False)

    @property
    def bytes(self) -> int:
        """The size of all its segments."""
        return sum(segment.bytes for each in self.partitions for segment in each.segments)

    def parts(self) -> list[Part]:
        """All parts of the pool that it needs."""
        found = [] if self.tree is None else [self.tree]
        for broker in self.brokers:
            found += broker.files.values()
        for each in self.partitions:
            found += each.files.values()
            found += [part for segment in each.segments for part in segment.parts]
        return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it completely and durably before it gets its name."""
    body = json.dumps(_plain(manifest), separators=(",", ":")).encode()
    head = {"kstore_backup": FORMAT, "sha256": hashlib.sha256(body).hexdigest()}
    path = folder / (manifest.name + SUFFIX)
    unfinished = folder / (manifest.name + SUFFIX + ".unfinished")
    with open(
        os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "wb"
    ) as file:
        file.write(json.dumps(head).encode() + b"\n" + body)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_dir(folder)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises BackupError if it is torn, or has a newer version."""
    head_line, _, body = path.read_bytes().partition(b"\n")
    try:
        head = json.loads(head_line)
        written, checksum = int(head["kstore_backup"]), str(head["sha256"])
    except (ValueError, KeyError, TypeError):
        raise BackupError(_torn(path)) from None
    if written > FORMAT:
        raise BackupError(
            f"{path} is of backup format {written}, and this version of kstore reads format "
            f"{FORMAT}: use the version that made it, or a newer one"
        )
    if hashlib.sha256(body).hexdigest() != checksum:
        raise BackupError(_torn(path))
    return _manifest(json.loads(body), path)


def _torn(path: Path) -> str:
    return (
        f"{path} is torn or damaged: its checksum is wrong. Nothing of this backup is used; take "
        "another one of `kstore backup list`"
    )


def _plain(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "kind": manifest.kind,
        "version": manifest.version,
        "begun_ms": manifest.begun_ms,
        "noted_ms": manifest.noted_ms,
        "cluster_id": manifest.cluster_id,
        "tree": manifest.tree,
        "new_bytes": manifest.new_bytes,
        "brokers": [[broker.node_id, broker.files] for broker in manifest.brokers],
        "partitions": [each._asdict() for each in manifest.partitions],
    }


def _manifest(row: dict[str, Any], path: Path) -> Manifest:
    return Manifest(
        name=row["name"],
        kind=row["kind"],
        version=row["version"],
        begun_ms=row["begun_ms"],
        noted_ms=row["noted_ms"],
        cluster_id=row["cluster_id"],
        tree=None if row["tree"] is None else Part(*row["tree"]),
        brokers=tuple(BrokerFiles(node_id, _files(files)) for node_id, files in row["brokers"]),
        partitions=tuple(_partition(each) for each in row["partitions"]),
        new_bytes=row["new_bytes"],
        path=path,
    )


def _partition(row: dict[str, Any]) -> PartitionBackup:
    segments = tuple(
        SegmentBackup(base, after, tuple(Part(*part) for part in parts), SegmentOrigin(*origin))
        for base, after, parts, origin in row["segments"]
    )
    return PartitionBackup(
        **row
        | {
            "replicas": tuple(row["replicas"]),
            "segments": segments,
            "files": _files(row["files"]),
        }
    )


def _files(rows: dict[str, Any]) -> dict[str, Part]:
    return {name: Part(*part) for name, part in rows.items()}
