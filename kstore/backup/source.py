"""The source of a backup: the brokers' log dirs on this machine, their coordination store, and its
partitions.
"""

from __future__ import annotations

import json
import os
import uuid
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kstore.backup.errors import BackupError
from kstore.env import SystemEnv
from kstore.log.segments.segment_names import parse_directory_name, read_topic_id
from kstore.types import TopicPartition

__all__ = ["BrokerSource", "Layout", "Placed", "Source", "cluster_id_of", "layout_of"]

TOPICS = "/brokers/topics/"
TREE_KEY = "/cluster/id"


class BrokerSource(NamedTuple):
    """A broker whose files are on this machine; ``properties``: the text of its settings file."""

    node_id: int
    log_dirs: tuple[str, ...]
    properties: bytes | None = None


@dataclass(frozen=True)
class Source:
    """What to back up. ``read_tree`` gives the coordination store's nodes; None for an embedded log
    dir, which has none.
    """

    kind: str
    brokers: tuple[BrokerSource, ...]
    read_tree: Callable[[], Mapping[str, bytes]] | None


class Placed(NamedTuple):
    """A partition, the brokers that have it, and those that are in sync."""

    topic_id: str | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


Layout = Mapping[TopicPartition, Placed]


def layout_of(source: Source, tree: Mapping[str, bytes] | None) -> dict[TopicPartition, Placed]:
    """Every partition, from the store's nodes, or from the folders of an embedded log dir."""
    if tree is None:
        return _of_folders(source.brokers)
    found = {}
    for path, data in tree.items():
        name = path.removeprefix(TOPICS)
        if name == path or "/" in name:
            continue
        try:
            node = json.loads(data)
            topic_id = _plain_id(node.get("topic_id"))
            for number, replicas in node["partitions"].items():
                state = tree.get(f"{path}/partitions/{number}/state")
                if state is not None:
                    isr = tuple(json.loads(state)["isr"])
                    key = TopicPartition(name, int(number))
                    found[key] = Placed(topic_id, tuple(replicas), isr)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupError(
                f"the node {path} of the coordination store is malformed: {error!r}"
            ) from error
    return found


def cluster_id_of(tree: Mapping[str, bytes] | None) -> str | None:
    """The cluster's id from its store. The cluster's requirements may follow it after a space."""
    data = None if tree is None else tree.get(TREE_KEY)
    return None if data is None else str(json.loads(data)["id"]).partition(" ")[0]


def _of_folders(brokers: Sequence[BrokerSource]) -> dict[TopicPartition, Placed]:
    found, fs = {}, SystemEnv().fs
    for broker in brokers:
        for log_dir in broker.log_dirs:
            for name in sorted(os.listdir(log_dir)):
                key = parse_directory_name(name)
                if key is not None:
                    topic_id = read_topic_id(fs, os.path.join(log_dir, name))
                    own = (broker.node_id,)
                    found[key] = Placed(str(topic_id) if topic_id else None, own, own)
    return found


def _plain_id(text: str | None) -> str | None:
    return None if not text else str(uuid.UUID(bytes=urlsafe_b64decode(text + "==")))
