"""The opaque bytes of an offset (KIP-232): the partition epoch and the leader epoch that it belongs
to. Users store them with the offset and pass them to `seek`.

One byte is the version, then both epochs follow; another version may have another length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "OffsetEpoch", "decode", "encode", "encode_known", "of_other_topics", "partition_epoch_of",
]  # fmt: skip

_VERSION = 0
_LAYOUT = struct.Struct(">Bii")


class OffsetEpoch(NamedTuple):
    """The two epochs; -1 if unknown."""

    partition_epoch: int
    leader_epoch: int


def encode(partition_epoch: int, leader_epoch: int) -> bytes:
    """The opaque form; both epochs are -1 (unknown) or above. Raises ValueError for others."""
    if not (-1 <= partition_epoch < 2**31 and -1 <= leader_epoch < 2**31):
        raise ValueError(f"{partition_epoch} and {leader_epoch} are not epochs")
    return _LAYOUT.pack(_VERSION, partition_epoch, leader_epoch)


def encode_known(partition_epoch: int, leader_epoch: int) -> bytes | None:
    """As `encode`; None if the partition epoch is unknown."""
    return None if partition_epoch < 0 else encode(partition_epoch, leader_epoch)


def partition_epoch_of(offset: OffsetAndMetadata) -> int:
    """The partition epoch of a committed offset; -1: unknown. Raises ValueError as `decode`."""
    return -1 if offset.offset_epoch is None else decode(offset.offset_epoch).partition_epoch


def of_other_topics(
    committed: Mapping[TopicPartition, OffsetAndMetadata], epochs: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """The partitions whose committed offset belongs to another topic of the same name than the one
    with these partition epochs (KIP-232).
    """
    return [
        tp
        for tp, offset in committed.items()
        if tp in epochs
        and -1 not in (mine := partition_epoch_of(offset), epochs[tp])
        and mine != epochs[tp]
    ]


def decode(offset_epoch: bytes) -> OffsetEpoch:
    """Decode the epochs. Raises ValueError for bytes that `encode` did not create."""
    if not isinstance(offset_epoch, (bytes, bytearray, memoryview)):
        raise ValueError(f"an offset epoch is bytes, not {type(offset_epoch).__name__}")
    if len(offset_epoch) != _LAYOUT.size or offset_epoch[0] != _VERSION:
        raise ValueError(
            f"{bytes(offset_epoch[:32])!r} is not an offset epoch that this version of kstore can "
            "read; pass the bytes that position_and_offset_epoch or a commit returned, unchanged"
        )
    _, partition_epoch, leader_epoch = _LAYOUT.unpack(offset_epoch)
    if partition_epoch < -1 or leader_epoch < -1:
        raise ValueError(f"{bytes(offset_epoch)!r} has epochs below -1: it was changed")
    return OffsetEpoch(partition_epoch, leader_epoch)
