"""A replicator's requests: pieces of batches, and a copy against a model of its target."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.clients.core.replication import PartitionCopy, Piece, Step, cut, plan_pieces
from kstore.record import ControlType, Record, batches, build_batch, decode, validate
from kstore.types import TopicPartition
from tests.fast.log.test_compaction import clean
from tests.record.producer_batches import marker

TP = TopicPartition("orders", 0)
TIME = 1_700_000_000_000
Told = tuple[int, int, bytes | None, bytes | None, tuple[Any, ...]]


def told(record: Record) -> Told:
    """All that must be equal in both clusters."""
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


def compacted(data: bytes) -> bytes:
    """The log as Kafka's cleaner leaves it: sparse and empty batches."""
    return clean(data, now_ms=TIME, delete_retention_ms=1 << 40)


class Source:
    """A log of plain, idempotent and transactional batches and markers; perhaps compacted."""

    def __init__(self, rng: Random) -> None:
        out: list[bytes] = []
        offset = 0
        open_since: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, its marker
        for number in range(rng.randint(1, 25)):
            producer = rng.choice([-1, 7, 8, 9])
            if producer in open_since and rng.random() < 0.4:
                kind = rng.choice([ControlType.ABORT, ControlType.COMMIT])
                first = open_since.pop(producer)
                if kind == ControlType.ABORT:
                    self.aborted.append((producer, first, offset))
                out.append(marker(kind, producer, offset, epoch=2, timestamp=TIME))
                offset += 1
                continue
            transactional = producer > 7 or producer in open_since
            if transactional:
                open_since.setdefault(producer, offset)
            rows = [self._row(rng, number) for _ in range(rng.randint(1, 5))]
            out.append(
                build_batch(
                    rows, base_offset=offset, leader_epoch=3, compression=rng.choice([0, 1, 4]),
                    producer_id=producer, producer_epoch=-1 if producer < 0 else 2,
                    base_sequence=-1 if producer < 0 else 10 * number,
                    transactional=transactional,
                )
            )  # fmt: skip
            offset += len(rows)
        for producer in list(open_since):
            out.append(marker(ControlType.COMMIT, producer, offset, epoch=2, timestamp=TIME))
            offset += 1
        data = b"".join(out)
        self.data = compacted(data) if rng.random() < 0.5 else data
        self.end = offset

    @staticmethod
    def _row(rng: Random, number: int) -> Any:
        headers = [("h", b"1"), ("h", None)] if rng.random() < 0.2 else []
        value = None if rng.random() < 0.1 else b"v%d" % rng.randint(0, 999)
        return value, b"k%d" % rng.randint(0, 6), TIME + number, headers

    def records(self, committed: bool) -> list[Told]:
        """By the decoder that consumers use."""
        pairs = [(p, f) for p, f, _ in self.aborted] if committed else None
        return [told(record) for record in decode(self.data, aborted=pairs)]

    def fetch(self, rng: Random, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
        """From the batch that holds the offset, cut off anywhere after the first batch."""
        found = [b for b in batches(self.data) if b.last_offset >= offset]
        if not found:
            return b"", []
        start = found[0].position
        size = rng.randint(found[0].size_bytes, len(self.data) - start)
        return self.data[start : start + size], [
            (p, f) for p, f, until in self.aborted if until >= offset
        ]


def check_piece(piece: Piece) -> list[Told]:
    """A piece is what the broker takes for given offsets; its records."""
    (batch,) = validate(piece.data, expected_offset=piece.base_offset)
    assert batch.records_count == batch.next_offset - batch.base_offset == piece.records
    assert (batch.base_offset, batch.next_offset) == (piece.base_offset, piece.end_offset)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert not batch.is_transactional
    assert not batch.is_control
    return [told(record) for record in decode(piece.data)]


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=80, deadline=None)
def test_pieces_hold_what_a_consumer_would_read(rng: Random, committed: bool) -> None:
    source = Source(rng)
    position = rng.randint(0, source.end)
    wanted = [row for row in source.records(committed) if row[0] >= position]
    found: list[Told] = []
    while position < source.end:
        data, aborted = source.fetch(rng, position)
        plan = plan_pieces(data, position, aborted if committed else None)
        for piece in plan.pieces:
            assert piece.base_offset >= position
            found += check_piece(piece)
        if not data:
            break  # the rest was compacted away
        assert plan.next_offset > position
        position = plan.next_offset
    assert found == wanted


def test_a_batch_without_gaps_and_producer_is_not_copied() -> None:
    data = build_batch([b"a", b"b"], base_offset=4, timestamp=TIME)
    (piece,) = plan_pieces(data, 4).pieces
    assert bytes(piece.data) == data
    assert isinstance(piece.data, memoryview)


def test_append_times_become_the_records_own() -> None:
    from kstore.record import assign

    data = bytearray(build_batch([(b"a", None, 5), (b"b", None, 6)]))
    assign(data, base_offset=8, leader_epoch=1, log_append_time=TIME)
    (piece,) = plan_pieces(bytes(data), 8).pieces
    assert [row[:2] for row in check_piece(piece)] == [(8, TIME), (9, TIME)]
    assert [batch.timestamp_type for batch in batches(piece.data)] == [0]


def test_a_piece_is_cut_at_the_position() -> None:
    (piece,) = plan_pieces(build_batch([b"a", b"b", b"c"], base_offset=7), 7).pieces
    assert [row[0] for row in check_piece(cut(piece, 8))] == [8, 9]


def test_what_is_too_large_is_halved_down_to_single_records() -> None:
    copy = PartitionCopy(TP)
    copy.located(0, 1)
    copy.checked()
    copy.fetched(plan_pieces(build_batch([b"a", b"b", b"c"]), 0), 3)
    before = copy.buffered_bytes
    sizes = []
    while (piece := copy.next_piece()) is not None:
        sizes.append(piece.records)
        if piece.records > 1:
            assert copy.split()
            assert copy.buffered_bytes > before
        else:
            assert not copy.split()
            copy.in_progress = piece
            copy.acknowledged()
    assert sizes == [3, 1, 2, 1, 1]
    assert copy.position == 3
    assert copy.buffered_bytes == 0


class Target:
    """A replicated partition as its leaders see it: what is beyond the high watermark may go."""

    def __init__(self, wanted: list[Told]) -> None:
        self.wanted = wanted
        self.records: list[Told] = []
        self.end = self.high_watermark = 0
        self.epoch = 1

    def append(self, piece: Piece, epoch: int) -> str:
        if epoch != self.epoch:
            return "fenced"
        if piece.base_offset < self.end:
            return "refused"
        self.records += check_piece(piece)
        self.end = piece.end_offset
        expected = [row for row in self.wanted if row[0] < self.end]
        assert self.records == expected, "a record is missing, doubled or out of place"
        return "appended"

    def fail_over(self, rng: Random) -> None:
        self.epoch += 1
        self.end = rng.randint(self.high_watermark, self.end)
        self.records = [row for row in self.records if row[0] < self.end]


class Replicator:
    """One process: its copy, and the request that it waits for."""

    def __init__(self, source: Source, target: Target, committed: bool) -> None:
        self.source, self.target, self.committed = source, target, committed
        self.copy = PartitionCopy(TP)
        self.sent: tuple[Piece, int] | None = None  # and not at the leader yet
        self.appended: tuple[int, int] | None = None  # end offset and epoch that it waits for

    def step(self, rng: Random, stray: deque[tuple[Piece, int]]) -> None:
        copy, target = self.copy, self.target
        if copy.step == Step.LOCATE:
            copy.located(target.high_watermark, target.epoch)
        elif copy.step == Step.CHECK:
            if copy.leader_epoch != target.epoch:
                copy.locate()
            elif target.high_watermark >= copy.position:
                copy.checked()
        elif self.appended is not None:
            self._await_answer(rng)
        elif self.sent is not None:
            self._arrive(rng, stray)
        elif rng.random() < 0.5 and copy.fetch_offset < self.source.end:
            data, aborted = self.source.fetch(rng, copy.fetch_offset)
            plan = plan_pieces(data, copy.fetch_offset, aborted if self.committed else None)
            copy.fetched(plan, self.source.end)
            if not data:
                copy.fetch_offset = self.source.end
        elif (piece := copy.next_piece()) is not None:
            self.sent = piece, copy.leader_epoch

    def _arrive(self, rng: Random, stray: deque[tuple[Piece, int]]) -> None:
        assert self.sent is not None
        (piece, epoch), self.sent = self.sent, None
        if rng.random() < 0.15:  # the connection breaks; the request may arrive, or may not
            stray.append((piece, epoch))
            self.copy.locate()
            return
        came = self.target.append(piece, epoch)
        if came == "appended":
            self.appended = self.target.end, epoch
        elif came == "refused":
            self.copy.refused(self.target.end)
        else:
            self.copy.locate()

    def _await_answer(self, rng: Random) -> None:
        assert self.appended is not None
        end, epoch = self.appended
        if epoch != self.target.epoch or rng.random() < 0.1:
            self.appended = None
            self.copy.locate()
        elif self.target.high_watermark >= end:
            self.appended = None
            self.copy.acknowledged()


@given(st.integers(0, 1 << 32), st.booleans(), st.integers(1, 2))
@settings(max_examples=80, deadline=None)
def test_replicators_leave_each_record_once_whatever_fails(
    seed: int, committed: bool, count: int
) -> None:
    rng = Random(seed)
    source = Source(rng)
    target = Target(source.records(committed))
    working = [Replicator(source, target, committed) for _ in range(count)]
    stray: deque[tuple[Piece, int]] = deque()
    for turn in range(3000):
        calm = turn > 300
        who = rng.randrange(count)
        working[who].step(rng, stray)
        if rng.random() < 0.3:
            target.high_watermark = rng.randint(target.high_watermark, target.end)
        if stray and rng.random() < 0.3:
            target.append(*stray.popleft())
        if not calm and rng.random() < 0.05:
            target.fail_over(rng)
        if not calm and rng.random() < 0.05:  # kill -9
            if (request := working[who].sent) is not None:
                stray.append(request)
            working[who] = Replicator(source, target, committed)
        if calm and all(each.copy.has_copied(source.end) for each in working):
            break
        if calm:
            target.high_watermark = target.end
    assert target.records == target.wanted
    assert all(each.copy.has_copied(source.end) for each in working)
    assert all(each.copy.buffered_bytes == 0 for each in working)
