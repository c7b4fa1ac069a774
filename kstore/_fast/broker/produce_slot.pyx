"""A Produce answer: what it says of a partition, and one (acks=all) that waits for the followers.

The latter is encoded when the records are appended, as if all went well, and put right where that
does not hold; requests behind it on the connection are appended meanwhile. What is appended is
produce_path's, how far the followers are, replica_state's.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memmove

from kstore._fast.record.buffer cimport store_int16
from kstore._fast.error_codes cimport (
    FENCED_LEADER_EPOCH, MESSAGE_TOO_LARGE, NONE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT)
from kstore._fast.broker.node_hints cimport LEADER_TAG_BYTES, put_leader
from kstore._fast.broker.produce_request cimport FIRST_FLEXIBLE
from kstore._fast.protocol.wire cimport (
    put_count, put_int8, put_int16, put_int32, put_int64, put_string, put_unsigned, room)

cdef enum:
    FIRST_LOG_START_OFFSET = 5
    FIRST_ERROR_MESSAGE = 8
    FIRST_CURRENT_LEADER = 10
    PARTITION_ANSWER_BYTES = 240
    LEADER_TAG = 0                                  # KIP-951
    LOG_END_OFFSET_TAG = 39101
    EXPIRED_PER_TURN = 500                          # requests whose time is over

cdef const char* TOO_MUCH = (
    b"The records of the compressed batch decompress to more than 16 MB, 32 times "
    b"max.message.bytes and 256 times its size: send smaller batches")


cdef Py_ssize_t put_partition(
    AnswerBuffer out, int version, int32_t index, int16_t error, ProduceOffsets* offsets,
    Partition partition
) except -2:
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef Py_ssize_t tags_at
    room(out, PARTITION_ANSWER_BYTES)
    put_int32(out, index)
    put_int16(out, error)
    put_int64(out, offsets.base_offset)
    put_int64(out, offsets.log_append_time_ms)
    if version >= FIRST_LOG_START_OFFSET:
        put_int64(out, offsets.log_start_offset)
    if version >= FIRST_ERROR_MESSAGE:
        put_count(out, 0, flexible)                 # record errors
        if error == MESSAGE_TOO_LARGE and offsets.holds_too_much:
            put_string(out, <const uint8_t*>TOO_MUCH, len(TOO_MUCH), flexible)
        else:
            put_string(out, NULL, -1, flexible)     # no error message
    tags_at = out.size
    if flexible:
        put_partition_tags(out, tells_leader(version, error, partition), offsets, partition)
    return tags_at if version >= FIRST_CURRENT_LEADER else -1


cdef bint tells_leader(int version, int16_t error, Partition partition) noexcept:
    return version >= FIRST_CURRENT_LEADER and (
        error == NOT_LEADER_OR_FOLLOWER or error == FENCED_LEADER_EPOCH
    ) and partition.leader_id >= 0


cdef int put_partition_tags(
    AnswerBuffer out, bint leader, ProduceOffsets* offsets, Partition partition
) noexcept:
    """The leader; the log end offset, for one that gives offsets."""
    put_int8(out, leader + (offsets.log_end_offset >= 0))
    if leader:
        put_leader(out, LEADER_TAG, partition)
    if offsets.log_end_offset >= 0:
        put_unsigned(out, LOG_END_OFFSET_TAG)
        put_int8(out, 8)
        put_int64(out, offsets.log_end_offset)
    return 0


cdef class PartWait(CommitWait):
    """One partition of a request waits for the high watermark."""

    cdef int answer(self, int16_t error) except -1:
        cdef ProduceSlot slot = self.slot
        self.slot = None
        if slot is None or slot.done:
            return 0
        if error != NONE:
            store_int16(slot.held.data + self.error_at, error)
        if error == NOT_LEADER_OR_FOLLOWER and self.tags_at >= 0 and self.partition.leader_id >= 0:
            slot.tell_leader(self)
        return slot.one_done()


cdef class ProduceSlot(Slot):
    """The place of an answer that waits for the high watermark of each of its partitions."""

    cpdef int complete(self, body) except -1:
        """The records are on the disk, as kstore.flush.policy=always asks; the answer is there."""
        if not self.done:
            self.one_done()
        return 0

    cdef int one_done(self) except -1:
        self.remaining -= 1
        if self.remaining == 0:
            self.owner.waiting.pop(self, None)
            self.sink.close_answer(self)
        return 0

    cdef int stop_waiting(self, int16_t error) except -1:
        """Wait for no partition any more; those that were waited for get the error."""
        cdef PartWait wait
        for wait in self.waits:
            if wait.slot is not None:
                if wait.partition.replication is not None:
                    wait.partition.replication.drop_wait(wait)
                if error == NONE:
                    wait.slot = None
                else:
                    wait.answer(error)
        return 0

    cdef int cancel(self) except -1:
        self.done = True
        self.owner.waiting.pop(self, None)
        return self.stop_waiting(NONE)

    cdef int tell_leader(self, PartWait wait) except -1:
        """Put the leader's tag among the partition's (KIP-951): it comes first."""
        cdef AnswerBuffer out = self.held
        cdef Py_ssize_t at = wait.tags_at + 1
        cdef Py_ssize_t size = out.size
        cdef PartWait other
        room(out, LEADER_TAG_BYTES)
        memmove(out.data + at + LEADER_TAG_BYTES, out.data + at, size - at)
        out.data[wait.tags_at] += 1
        out.size = at
        put_leader(out, LEADER_TAG, wait.partition)
        out.size = size + LEADER_TAG_BYTES
        for other in self.waits:
            if other.error_at > wait.tags_at:
                other.error_at += LEADER_TAG_BYTES
                other.tags_at += LEADER_TAG_BYTES
        return 0


cdef class ProduceWaits:
    """All Produce answers that wait, and the one timer that ends the longest waits."""

    def __init__(self, PartitionTable table not None, call_later):
        self.table = table
        self.call_later = call_later
        self.waiting = {}

    @property
    def parked(self):
        """How many answers wait now."""
        return len(self.waiting)

    cdef ProduceSlot park(
        self, AnswerSink sink, int32_t correlation_id, bint flexible, AnswerBuffer answer,
        list waits, int32_t timeout_ms, bint durable
    ):
        """The slot of an encoded answer that waits for these, and for the disk where it must."""
        cdef ProduceSlot slot = ProduceSlot.__new__(ProduceSlot)
        cdef PartWait wait
        cdef int64_t now_ms = self.table.replication.now_ms()
        slot.sink = sink
        slot.correlation_id = correlation_id
        slot.flexible = flexible
        slot.held = answer
        slot.owner = self
        slot.waits = waits
        slot.remaining = len(waits) + durable
        slot.deadline_ms = now_ms + max(timeout_ms, 0)
        for wait in waits:
            wait.slot = slot
            wait.partition.replication.add_wait(wait)
        self.waiting[slot] = None
        if self.call_later is not None and (
                self.timer is None or slot.deadline_ms < self.timer_ms):
            self.set_timer(slot.deadline_ms, now_ms)
        return slot

    cdef int set_timer(self, int64_t deadline_ms, int64_t now_ms) except -1:
        if self.timer is not None:
            self.timer.cancel()
        self.timer_ms = deadline_ms
        self.timer = self.call_later(max(deadline_ms - now_ms, 0) / 1000.0, self.expire)
        return 0

    def expire(self):
        """Answer those whose time is over, some in each turn of the loop, and set the timer for the
        next.
        """
        cdef ProduceSlot slot
        cdef int64_t now_ms = self.table.replication.now_ms()
        cdef int64_t least = -1
        cdef int left = EXPIRED_PER_TURN
        self.timer = None
        for slot in list(self.waiting):
            if slot.deadline_ms <= now_ms and left > 0:
                left -= 1
                slot.stop_waiting(REQUEST_TIMED_OUT)
        for slot in self.waiting:
            if least < 0 or slot.deadline_ms < least:
                least = slot.deadline_ms
        if least >= 0:
            self.set_timer(least, now_ms)
