"""Whether the last batch of an exact copy is the source's, whatever compaction changed."""

from __future__ import annotations

import pytest

from kstore.clients.core.exact_copies import BatchHeader, ExactCopy, header_of, plan_exact, unlike
from kstore.clients.core.replication import Step
from kstore.record import ControlType, batches, build_batch
from kstore.types import TopicPartition
from tests.fast.log.test_compaction import clean
from tests.record.producer_batches import marker

TIME = 1_700_000_000_000
TOMBSTONE = build_batch([(b"a", b"v"), (b"b", None)], timestamp=TIME)
MARKER = marker(ControlType.COMMIT, timestamp=TIME)


def cleaned(data: bytes) -> bytes:
    """As the cleaner leaves it at first: all is there, and it is noted when what may go."""
    return clean(
        data, decide=lambda _id, _offset, kind: kind >= 0, now_ms=TIME, delete_retention_ms=1000
    )


def header(data: bytes) -> BatchHeader:
    [batch] = batches(data, verify=True)
    return header_of(batch)


@pytest.mark.parametrize("data", [TOMBSTONE, bytes(MARKER)], ids=["tombstone", "marker"])
def test_a_batch_stays_the_same_when_the_cleaner_notes_when_it_may_go(data: bytes) -> None:
    assert cleaned(data) != data
    assert header(cleaned(data)).records == header(data).records
    assert not unlike(header(cleaned(data)), header(data))
    assert not unlike(header(data), header(cleaned(data)))


def test_batches_with_other_bytes_or_offsets_are_two() -> None:
    assert not unlike(header(TOMBSTONE), header(TOMBSTONE))
    other = build_batch([(b"a", b"v"), (b"b", b"")], timestamp=TIME)
    assert unlike(header(other), header(TOMBSTONE))
    longer = build_batch([(b"a", b"v")] * 3, timestamp=TIME)
    assert unlike(header(cleaned(TOMBSTONE)), header(longer))
    signed = build_batch([b"x"], timestamp=TIME, producer_id=1, producer_epoch=0, base_sequence=0)
    assert unlike(header(signed), header(build_batch([b"x"], timestamp=TIME)))


def test_a_batch_that_the_target_has_in_parts_does_not_hold_the_copy() -> None:
    copy = ExactCopy(TopicPartition("t", 0))
    copy.located(0, 1)
    copy.checked()
    made = build_batch([b"x"] * 10, timestamp=TIME)
    copy.fetched(plan_exact(made, 0).plan, 10)
    assert copy.next_piece() is not None
    copy.refused(5)  # another writer has other batches: compare before sending
    assert (copy.step, copy.position) == (Step.CHECK, 5)
    assert not copy.has_copied(10)
