"""The nodes of the coordination store in the format of a backup: a line of JSON each."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping

__all__ = ["pack_tree", "unpack_tree", "without_topics"]

OF_TOPICS = ("/brokers/topics/", "/config/topics/")


def pack_tree(nodes: Mapping[str, bytes]) -> bytes:
    """Parse path and data, by path."""
    rows = ([path, base64.b64encode(data).decode()] for path, data in sorted(nodes.items()))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def unpack_tree(data: bytes) -> dict[str, bytes]:
    """The inverse of ``pack_tree``."""
    return {path: base64.b64decode(text) for path, text in map(json.loads, data.splitlines())}


def without_topics(nodes: Mapping[str, bytes], topics: Collection[str]) -> dict[str, bytes]:
    """The nodes without those of some topics."""
    return {path: data for path, data in nodes.items() if _topic_of(path) not in topics}


def _topic_of(path: str) -> str:
    for prefix in OF_TOPICS:
        if path.startswith(prefix):
            return path[len(prefix) :].partition("/")[0]
    return ""
