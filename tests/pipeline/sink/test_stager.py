"""A staged record equals what a producer would have sent, and its value is not copied. Records are
staged concurrently, and an error is raised where the record is staged. Batches for one target are
staged together.
"""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.clients import AdminClient
from kstore.clients.admin.topics import NewTopic
from kstore.config.client.configs import client_settings
from kstore.errors import KafkaError, UnknownTopicOrPartitionError
from kstore.pipeline.sink.pieces import HELD_BYTES, PIECE_BYTES, Pieces
from kstore.pipeline.sink.rows import Encoded
from kstore.pipeline.sink.stager import AT_ONCE, Stager, wrapped
from kstore.pipeline.sink.staging import key_of
from kstore.pipeline.sink.written import StagedRun
from kstore.record import RecordBatchBuilder, batches, decode
from kstore.testing.brokers import Broker
from tests.beside.topic_records import records_of

ZEROS = bytes(3_000_000)


def batch_of(*values: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(value, None, 5)
    return bytes(builder.build(0))


@given(st.binary(max_size=200), st.lists(st.binary(max_size=9000), min_size=1, max_size=5))
def test_the_parts_are_a_batch_of_one_record(key: bytes, values: list[bytes]) -> None:
    made = [batch_of(value, b"another") for value in values]
    parts = wrapped(key, made, 1_700_000_000_000)
    assert all(part is batch for part, batch in zip(parts[1:-1], made, strict=True))
    (view,) = batches(b"".join(parts), verify=True)
    assert (view.records_count, view.max_timestamp) == (1, 1_700_000_000_000)
    (record,) = decode(b"".join(parts))
    assert (record.key, record.value, record.headers) == (key, b"".join(made), ())


class Recorded:
    """A stager whose records all go to partition 3."""

    def __init__(self) -> None:
        self.put_: list[tuple[int, bytes, list[bytes]]] = []

    def put(self, partition: int, key: bytes, values: list[bytes]) -> Future[int]:
        self.put_.append((partition, key, values))
        sent: Future[int] = Future()
        sent.set_result(1000 + len(self.put_))
        return sent


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 3_000_000), st.integers(1, 9)), max_size=60
    )
)
def test_pieces_have_the_batches_of_one_target_in_order(rows: list[tuple[int, int, int]]) -> None:
    """The number of records in memory stays within the limits."""
    stager, staged = Recorded(), dict[tuple[str, int], StagedRun]()
    pieces = Pieces(stager, b"a" * 16, lambda *_: 3, staged)  # type: ignore[arg-type]
    given_, held = dict[int, list[Encoded]](), 0
    for target, size, count in rows:
        batch = Encoded("t", target, count, ZEROS[:size])
        given_.setdefault(target, []).append(batch)
        before = sum(len(v) for *_, values in stager.put_ for v in values)
        pieces.add(batch)
        held += size + before - sum(len(v) for *_, values in stager.put_ for v in values)
        assert held <= HELD_BYTES
    pieces.finish()
    for target, batches_ in given_.items():
        key, run = key_of(b"a" * 16, "t", target), staged["t", target]
        mine = [(1001 + n, values) for n, (_, k, values) in enumerate(stager.put_) if k == key]
        assert [len(v) for _, values in mine for v in values] == [len(b.data) for b in batches_]
        assert (run.partition, run.offsets) == (3, [offset for offset, _ in mine])
        assert sum(run.counts) == sum(batch.records for batch in batches_)
        assert len(run.counts) == len(mine)
        assert all(sum(map(len, values[:-1])) < PIECE_BYTES for _, values in mine)
        assert all(len(values) == 1 or len(values[-1]) <= PIECE_BYTES for _, values in mine)


def test_a_large_row_is_a_piece_of_its_own() -> None:
    stager = Recorded()
    pieces = Pieces(stager, b"a" * 16, lambda *_: 3, {})  # type: ignore[arg-type]
    for size in (PIECE_BYTES - 1, PIECE_BYTES + 1, 5):
        pieces.add(Encoded("t", 0, 1, ZEROS[:size]))
    pieces.finish()
    sizes = [[len(value) for value in values] for *_, values in stager.put_]
    assert sizes == [[PIECE_BYTES - 1], [PIECE_BYTES + 1], [5]]


def test_many_batches_are_staged_each_at_its_offset(broker: Broker, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("staged-many", 2)])
    made = [batch_of(b"%d" % n * 5000) for n in range(3 * AT_ONCE)]
    settings = client_settings("producer", {"bootstrap.servers": broker.bootstrap_servers})
    with Stager(settings, "staged-many") as stager:
        sent = [stager.put(n % 2, b"key", [batch]) for n, batch in enumerate(made)]
        offsets = [each.result() for each in sent]
    found = {
        (r.partition, r.offset): r.value
        for r in records_of(broker.bootstrap_servers, "staged-many")
    }
    assert [found[n % 2, offset] for n, offset in enumerate(offsets)] == made


def test_what_a_batch_fails_with_is_raised(broker: Broker) -> None:
    given_ = {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 130,
              "request.timeout.ms": 100, "linger.ms": 0}  # fmt: skip
    with Stager(client_settings("producer", given_), "nowhere") as stager:
        with pytest.raises(UnknownTopicOrPartitionError):
            stager.put(0, b"key", [batch_of(b"x")]).result()
        with pytest.raises(KafkaError):
            stager.put(0, b"key", [batch_of(b"x")])
