"""What an attempt stages, in pieces: the batches of a target partition are collected until they are
worth a record of the sink's own topic. A record costs a request, and the leader that copies it some
turns of its threads, however small it is.
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
"""Of this size, or one batch more, a piece is staged. A larger batch is a piece of its own, so that
no piece is larger than the sink's topic allows.
"""
HELD_BYTES = 16 << 20
"""Of pieces that are not yet so large; with more, all are staged."""


@dataclass
class _Piece:
    values: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    rows: int = 0


class Pieces:
    """Of one attempt. ``near`` says in which partition of the sink's topic batches for a partition
    (topic, index, a number by chance) belong; ``staged`` is filled.
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
        """A batch of the attempt's rows, the next one of its target."""
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
        """Returns when all is staged, or raises what a piece failed with."""
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
