"""Batches of producers with an id, and the markers that end their transactions."""

from __future__ import annotations

from typing import Any

from kstore.record import ControlType, EndTransactionMarker, build_batch, control_batch


def produced(
    *values: Any, producer: int = 7, epoch: int = 0, sequence: int = 0, transactional: bool = False,
    **more: Any,
) -> bytes:  # fmt: skip
    """A batch of an idempotent or transactional producer; a value may be a whole row."""
    return build_batch(
        values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
        transactional=transactional, **more,
    )  # fmt: skip


def marker(
    kind: ControlType, producer: int = 7, offset: int = 0, *, epoch: int = 0, timestamp: int = 1,
    coordinator_epoch: int = 0,
) -> bytes:  # fmt: skip
    """The marker that ends a producer's transaction."""
    return control_batch(
        EndTransactionMarker(kind, coordinator_epoch), producer_id=producer, producer_epoch=epoch,
        timestamp=timestamp, base_offset=offset,
    )  # fmt: skip
