"""The state of share-partitions: what batches add up to, epochs that fence, snapshots, and that the
log says all of it again. The answers are compared with Kafka's in tests/conformance/groups.
"""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.shares.batches import combine
from kstore.broker.state.shares.persisted import (
    NO_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareWrite,
    StateBatch,
)
from kstore.broker.state.shares.share_shard import Refusal, ShareRecord, ShareShard
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.shares import (
    ShareSnapshotValue,
    ShareUpdateValue,
    decode_share_key,
    decode_share_value,
    encode_key,
    encode_value,
)

KEY = SharePartitionKey("group", UUID(int=7), 3)
BATCHES = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(-1, 12),
    st.sampled_from([0, 2, 4]),
    st.integers(1, 3),
)


def by_offset(*lists: tuple[StateBatch, ...], start_offset: int) -> dict[int, tuple[int, int]]:
    """The slow model: each offset with the highest reported count and state."""
    found: dict[int, tuple[int, int]] = {}
    for batch in [batch for each in lists for batch in each]:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            told = (batch.delivery_count, batch.delivery_state)
            if offset >= start_offset:
                found[offset] = max(found.get(offset, told), told)
    return found


@given(
    st.lists(BATCHES, max_size=8).map(tuple),
    st.lists(BATCHES, max_size=8).map(tuple),
    st.integers(-1, 35),
)
def test_batches_add_up_offset_by_offset_and_lie_in_order_and_apart(first, second, start) -> None:
    known = combine((), first)
    sum_of_both = combine(known, second, start)
    assert by_offset(sum_of_both, start_offset=-1) == by_offset(first, second, start_offset=start)
    for left, right in pairwise(sum_of_both):
        assert left.last_offset < right.first_offset
        joins = left.last_offset + 1 == right.first_offset
        assert not (joins and left[2:] == right[2:])


def test_a_share_partition_has_a_text_and_back() -> None:
    text = "my:group:AAAAAAAAAAAAAAAAAAAABw:3"
    key = SharePartitionKey("my:group", UUID(int=7), 3)
    assert str(key) == text
    assert SharePartitionKey.parse(text) == key


@pytest.mark.parametrize(
    "text",
    ["", "g", "g:1", ":AAAAAAAAAAAAAAAAAAAABw:3", "g::3", "g:AAAA:3", "g:AAAAAAAAAAAAAAAAAAAABw:x",
     "g:AAAAAAAAAAAAAAAAAAAABw:3:4", "g:AAAAAAAAAAAAAAAAAAAA w:3"],
)  # fmt: skip
def test_what_is_no_share_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share-partition"):
        SharePartitionKey.parse(text)


# ---- random histories ----

EPOCHS = st.integers(-1, 4)
STEPS = st.one_of(
    st.tuples(st.just("initialize"), EPOCHS, st.integers(-1, 20)),
    st.tuples(st.just("read"), EPOCHS),
    st.tuples(
        st.just("write"),
        st.builds(
            ShareWrite,
            EPOCHS,
            EPOCHS,
            st.integers(-1, 30),
            st.integers(-1, 5),
            st.lists(BATCHES, max_size=4).map(tuple),
        ),
    ),
    st.tuples(st.just("delete")),
    st.tuples(st.just("cold")),
)


def through_bytes(record: ShareRecord) -> ShareRecord:
    """As it comes back from a log."""
    key = decode_share_key(encode_key(record.key))
    assert key is not None
    if record.value is None:
        return ShareRecord(key, None)
    return ShareRecord(key, decode_share_value(key.RECORD_TYPE, encode_value(record.value, 0)))


@given(st.lists(STEPS, max_size=30), st.integers(0, 4))
def test_a_log_replayed_gives_the_same_state_and_needs_no_superseded_record(steps, limit) -> None:
    shard = ShareShard(limit, check_invariants=True)
    log: list[ShareRecord] = []
    for now_ms, (name, *arguments) in enumerate(steps):
        if name == "cold":
            decided = [shard.snapshot(key, now_ms) for key in shard.cold_keys(3, now_ms)]
        elif name == "delete":
            decided = [shard.delete(KEY)]
        else:
            decided = [getattr(shard, name)(KEY, *arguments, now_ms)]
        for record in decided:
            if isinstance(record, ShareRecord):
                shard.replay(record, len(log))
                log.append(record)
    again = ShareShard(limit, check_invariants=True)
    for offset, record in enumerate(log):
        again.replay(through_bytes(record), offset)
    assert again.partitions == shard.partitions
    pruned = ShareShard(limit, check_invariants=True)
    first = max(shard.redundant_below(), 0)
    for offset, record in enumerate(log[first:], first):
        pruned.replay(through_bytes(record), offset)
    assert pruned.partitions.keys() == shard.partitions.keys()
    if KEY in shard.partitions:
        assert pruned.state_of(KEY) == shard.state_of(KEY)
        assert pruned.summary_of(KEY) == shard.summary_of(KEY)


@given(st.lists(st.tuples(st.integers(-1, 30), st.lists(BATCHES, max_size=4).map(tuple))))
def test_what_was_written_is_read_whether_by_updates_or_snapshots(writes) -> None:
    states = []
    for limit in (0, 2, 500):
        shard = ShareShard(limit, check_invariants=True)
        start_record = shard.initialize(KEY, 1, 0, 0)
        assert isinstance(start_record, ShareRecord)
        shard.replay(start_record, 0)
        for offset, (start_offset, batches) in enumerate(writes, 1):
            record = shard.write(KEY, ShareWrite(1, 0, start_offset, 0, batches), offset)
            assert isinstance(record, ShareRecord)
            shard.replay(record, offset)
        states.append(shard.state_of(KEY))
    assert states[0] == states[1] == states[2]


# ---- snapshots ----


def test_a_snapshot_follows_so_many_updates() -> None:
    shard = ShareShard(2, check_invariants=True)
    kinds = []
    record = shard.initialize(KEY, 1, 5, 10)
    for offset in range(7):
        assert isinstance(record, ShareRecord)
        shard.replay(record, offset)
        kinds.append((type(record.value), getattr(record.value, "snapshot_epoch", None)))
        record = shard.write(KEY, ShareWrite(1, 0, NO_OFFSET, 0), 20)
    snapshot, update = ShareSnapshotValue, ShareUpdateValue
    assert kinds == [
        (snapshot, 0), (update, 0), (update, 0), (snapshot, 1), (update, 1), (update, 1),
        (snapshot, 2),
    ]  # fmt: skip
    assert shard.redundant_below() == 6


def test_a_share_partition_that_does_not_change_is_written_anew_once_it_is_cold() -> None:
    shard = ShareShard(500, check_invariants=True)
    record = shard.initialize(KEY, 1, 5, 10)
    assert isinstance(record, ShareRecord)
    shard.replay(record, 0)
    assert shard.cold_keys(100, 109) == []
    assert shard.cold_keys(100, 110) == [KEY]
    again = shard.snapshot(KEY, 110)
    assert again is not None
    shard.replay(again, 1)
    assert shard.redundant_below() == 1
    assert shard.cold_keys(100, 500) == []  # all are cold: nothing would be gained


def test_initializing_again_without_a_start_offset_keeps_what_was_acknowledged() -> None:
    shard = ShareShard(500, check_invariants=True)
    acknowledged = ShareWrite(1, 0, 5, 2, (StateBatch(7, 8, 2, 1),))
    for offset, decide in enumerate(
        (
            lambda: shard.initialize(KEY, 1, NO_OFFSET, 10),
            lambda: shard.write(KEY, acknowledged, 11),
            lambda: shard.initialize(KEY, 4, NO_OFFSET, 12),
        )
    ):
        record = decide()
        assert isinstance(record, ShareRecord)
        shard.replay(record, offset)
    kept = ShareState(1, 5, (StateBatch(7, 8, 2, 1),))
    assert shard.state_of(KEY) == kept, "and its leader goes on in its state epoch"
    assert shard.summary_of(KEY).delivery_complete_count == 2
    anew = shard.initialize(KEY, 4, 0, 13)
    assert isinstance(anew, ShareRecord)
    shard.replay(anew, 3)
    assert shard.state_of(KEY) == ShareState(4, 0, ())


def test_older_epochs_are_fenced_and_reading_raises_the_leader_epoch() -> None:
    shard = ShareShard(500, check_invariants=True)
    record = shard.initialize(KEY, 3, 5, 10)
    assert isinstance(record, ShareRecord)
    shard.replay(record, 0)
    read = shard.read(KEY, 7, 11)
    assert isinstance(read, ShareRecord)
    shard.replay(read, 1)
    assert shard.read(KEY, 7, 12) is None
    fenced = Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    assert shard.read(KEY, 6, 12) == fenced
    assert shard.write(KEY, ShareWrite(3, 6), 12) == fenced
    assert shard.write(KEY, ShareWrite(2, 7), 12) == Refusal(ErrorCode.FENCED_STATE_EPOCH)
    assert shard.initialize(KEY, 2, 0, 12) == Refusal(ErrorCode.FENCED_STATE_EPOCH)
    anew = shard.initialize(KEY, 4, 0, 12)
    assert isinstance(anew, ShareRecord)
    shard.replay(anew, 2)
    assert shard.write(KEY, ShareWrite(4, 6), 12) == fenced, "a new state keeps leaders fenced"
