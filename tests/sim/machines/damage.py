"""Damage of files on a bad disk: flipped bits, cut or missing files, an index with wrong contents.
faults.py chooses the disk and the time, and history.py checks the effects.

Only the partitions of one topic and the index are damaged, so the expected contents are known.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from random import Random

from tests.sim.history import Place
from tests.sim.machines.world import Node

INDEX_NAME = ".kstore.mdb"
LOG_OVERHEAD = 12
"""Of a batch: its base offset and its length come before what the length counts."""
PAGE = 4096

Damage = Callable[[Node, Random, str], "tuple[str, Place] | None"]
"""Damage a host's files of a topic: what was done, and to which partition. None: there are none."""


def _segments(node: Node, topic: str) -> list[str]:
    """The segment files of the topic that are not empty."""
    logs = os.path.join(node.disk.folder, "logs")
    found = []
    for name in sorted(os.listdir(logs)):
        if name.rpartition("-")[0] == topic and name.rpartition("-")[2].isdigit():
            folder = os.path.join(logs, name)
            found += [os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".log")]
    return sorted(path for path in found if batch_starts(path)[-1])


def _segment(node: Node, random: Random, topic: str) -> str | None:
    """One of these files."""
    paths = _segments(node, topic)
    return random.choice(paths) if paths else None


def batch_starts(path: str) -> list[int]:
    """The positions of the batches of a segment, and the end of the last one: zeros may follow."""
    with open(path, "rb") as file:
        data = file.read()
    starts = [0]
    while starts[-1] + LOG_OVERHEAD <= len(data):
        (length,) = struct.unpack_from(">i", data, starts[-1] + 8)
        end = starts[-1] + LOG_OVERHEAD + length
        if length <= 0 or end > len(data):
            break
        starts.append(end)
    return starts


def _told(path: str, what: str) -> tuple[str, Place]:
    folder, name = os.path.split(path)
    topic, _, index = os.path.basename(folder).rpartition("-")
    return f"{topic}-{index}/{name} {what}", Place(topic, int(index))


def flip_bit(node: Node, random: Random, topic: str) -> tuple[str, Place] | None:
    """Flip one bit in a batch of any segment, in its header or its records."""
    path = _segment(node, random, topic)
    if path is None:
        return None
    at = random.randrange(batch_starts(path)[-1])
    if random.random() < 0.5:  # in a header
        starts = batch_starts(path)
        at = random.choice(starts[:-1]) + random.randrange(61)
    bit = 1 << random.randrange(8)
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ bit]))
    return _told(path, f"has another bit at {at}")


def _cut(node: Node, random: Random, topic: str) -> tuple[str, Place] | None:
    """Cut a segment between two batches, or inside one."""
    path = _segment(node, random, topic)
    if path is None:
        return None
    starts = batch_starts(path)
    at = random.choice(starts[:-1])
    if random.random() < 0.5:
        at = random.randrange(starts[-1])
    os.truncate(path, at)
    synced = node.disk.synced
    synced[path] = min(synced.get(path, 0), at)
    return _told(path, f"is cut at {at}")


def _remove(node: Node, random: Random, topic: str) -> tuple[str, Place] | None:
    """Remove a segment."""
    path = _segment(node, random, topic)
    if path is None:
        return None
    os.unlink(path)
    node.disk.synced.pop(path, None)
    return _told(path, "is gone")


def _damage_index(node: Node, random: Random, topic: str) -> tuple[str, Place] | None:
    """Overwrite some bytes or pages of the index, cut it, or remove it."""
    path = os.path.join(node.disk.folder, "logs", INDEX_NAME)
    if not os.path.exists(path):
        return None
    size = os.path.getsize(path)
    kind = random.choice(["bytes", "page", "zeros", "cut", "gone"])
    if kind == "gone":
        os.unlink(path)
    elif kind == "cut":
        os.truncate(path, random.randrange(size))
    else:
        length = 16 if kind == "bytes" else PAGE
        at = random.randrange(0, max(size - length, 1))
        if kind != "bytes":
            at = at // PAGE * PAGE
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes(length) if kind == "zeros" else random.randbytes(length))
    return f"the index is damaged: {kind}", Place("", -1)


SEGMENT_DAMAGES: dict[str, Damage] = {"bit": flip_bit, "cut": _cut, "gone": _remove}
"""What may happen to segments while their broker is down."""
INDEX_DAMAGES: dict[str, Damage] = {"index": _damage_index}
"""What may happen to the index while its broker is down."""
