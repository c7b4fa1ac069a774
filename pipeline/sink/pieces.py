"""Stages the batches of an attempt in pieces. A piece is one record of the sink's own topic, with
batches of one target partition. Each record costs a request, and time in the leader's threads when
it is copied, so a piece collects batches until it is large enough.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from kstore.pipeline.sink.rows import Encoded
from kstore.pipeline.sink.stager import Stager
from kstore.pipeline.sink.staging import key_of
from kstore.pipeline.sink.written import StagedRun

__all__ = ["HELD_BYTES", "PIECE_BYTES", "Pieces"]

PIECE_BYTES = 2 << 20
"""A piece is staged when it has this size. A larger batch is a piece of its own, so that no piece
is larger than the sink's topic allows.
"""
HELD_BYTES = 16 << 20
"""The limit of the pieces in memory together: above it, all of them are staged."""


@dataclass
class _Piece:
    values: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    rows: int = 0


class Pieces:
    """The pieces of one attempt. ``near`` returns the partition of the sink's topic for a target
    (topic, index) and a random number. What is staged is added to ``staged``.
    """

    def __init__(
        self,
        stager: Stager,
        attempt: bytes,
        near: Callable[[str, int, int], int],
        staged: dict[tuple[str, int], StagedRun],
    ) -> None:
        self._stager = stager
        self._attempt = attempt
        self._near = near
        self._staged = staged
        self._held: dict[tuple[str, int], _Piece] = {}
        self._held_bytes = 0
        self._sent: list[tuple[StagedRun, Future[int]]] = []

    def add(self, batch: Encoded) -> None:
        """Add the next batch of a target."""
        target = batch.topic, batch.partition
        if len(batch.data) > PIECE_BYTES and target in self._held:
            self._put(target)
        piece = self._held.setdefault(target, _Piece())
        piece.values.append(batch.data)
        piece.size_bytes += len(batch.data)
        piece.rows += batch.records
        self._held_bytes += len(batch.data)
        if piece.size_bytes >= PIECE_BYTES:
            self._put(target)
        elif self._held_bytes > HELD_BYTES:
            self._put_all()

    def finish(self) -> None:
        """Stage the rest, and wait until everything is staged. Raises the error of a piece."""
        self._put_all()
        for run, sent in self._sent:
            run.offsets.append(sent.result())

    def _put_all(self) -> None:
        for target in list(self._held):
            self._put(target)

    def _put(self, target: tuple[str, int]) -> None:
        piece = self._held.pop(target)
        self._held_bytes -= piece.size_bytes
        run = self._staged.get(target)
        if run is None:
            run = self._staged[target] = StagedRun(self._near(*target, self._attempt[0]))
        key = key_of(self._attempt, *target)
        self._sent.append((run, self._stager.put(run.partition, key, piece.values)))
        run.counts.append(piece.rows)
