"""A Produce answer: its fields for a partition, and an answer (acks=all) that waits for followers.

The latter is encoded as a success when the records are appended, and corrected after a failure;
later requests of the connection are appended meanwhile. produce_path appends; replica_state tracks
the followers.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memmove

from kstore._fast.record.buffer cimport store_int16
from kstore._fast.error_codes cimport (
    FENCED_LEADER_EPOCH, NONE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT)
from kstore._fast.broker.node_hints cimport LEADER_TAG_BYTES, put_leader
from kstore._fast.broker.partition_events cimport OF_PRODUCE
from kstore._fast.broker.produce_request cimport FIRST_FLEXIBLE
from kstore._fast.protocol.wire cimport (
    put_count, put_int8, put_int16, put_int32, put_int64, put_no_tags, put_string, put_unsigned,
    room)

cdef enum:
    FIRST_LOG_START_OFFSET = 5
    FIRST_ERROR_MESSAGE = 8
    FIRST_CURRENT_LEADER = 10
    PARTITION_ANSWER_BYTES = 240
    LEADER_TAG = 0                                  # KIP-951
    LOG_END_OFFSET_TAG = 39101

# By ProduceWords.
cdef tuple WORDS = (
    b"",
    b"The records of the compressed batch decompress to more than 16 MB, 32 times "
    b"max.message.bytes and 256 times its size: send smaller batches",
    b"The topic does not take all records of the batch, so none was appended: see which ones",
    b"The bytes are not exactly one record batch: send one batch for each partition",
    b"An exact copy (kstore.mirror=true) takes the batches of kstore replicate --exact alone, and "
    b"another topic takes none of them",
)


cdef Py_ssize_t put_partition(
    AnswerBuffer out, int version, int32_t index, int16_t error, ProduceOffsets* offsets,
    Partition partition, list faults
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
        if offsets.words != NO_WORDS:
            put_words(out, offsets.words, faults, flexible)
        else:
            put_count(out, 0, flexible)             # record errors
            put_string(out, NULL, -1, flexible)     # no error message
    tags_at = out.size
    if flexible:
        put_partition_tags(out, tells_leader(version, error, partition), offsets, partition)
    return tags_at if version >= FIRST_CURRENT_LEADER else -1


cdef int put_words(AnswerBuffer out, ProduceWords words, list faults, bint flexible) except -1:
    """The invalid records, and the error message."""
    cdef bytes text
    cdef int32_t index
    cdef list named = faults if words == BAD_RECORDS else []
    put_count(out, len(named), flexible)
    for index, text in named:
        room(out, len(text) + 16)
        put_int32(out, index)
        put_string(out, <const uint8_t*><const char*>text, len(text), flexible)
        put_no_tags(out, flexible)
    text = WORDS[words]
    room(out, len(text) + PARTITION_ANSWER_BYTES)
    put_string(out, <const uint8_t*><const char*>text, len(text), flexible)
    return 0


cdef bint tells_leader(int version, int16_t error, Partition partition) noexcept:
    return version >= FIRST_CURRENT_LEADER and (
        error == NOT_LEADER_OR_FOLLOWER or error == FENCED_LEADER_EPOCH
    ) and partition.leader_id >= 0


cdef int put_partition_tags(
    AnswerBuffer out, bint leader, ProduceOffsets* offsets, Partition partition
) noexcept:
    """The leader; the log end offset, for given offsets."""
    put_int8(out, leader + (offsets.log_end_offset >= 0))
    if leader:
        put_leader(out, LEADER_TAG, partition)
    if offsets.log_end_offset >= 0:
        put_unsigned(out, LOG_END_OFFSET_TAG)
        put_int8(out, 8)
        put_int64(out, offsets.log_end_offset)
    return 0


cdef class PartWait(CommitWait):
    """One partition of a request, which waits for the high watermark."""

    cdef int answer(self, int16_t error) except -1:
        cdef ProduceSlot slot = self.slot
        self.slot = None
        if slot is None or slot.done:
            return 0
        if error != NONE:
            store_int16(slot.held.data + self.error_at, error)
            self.partition.events.errors.add(OF_PRODUCE, error)
        if error == NOT_LEADER_OR_FOLLOWER and self.tags_at >= 0 and self.partition.leader_id >= 0:
            slot.tell_leader(self)
        return slot.one_done()


cdef class ProduceSlot(Slot):
    """The slot of a response that waits for the high watermark of each of its partitions."""

    cpdef int complete(self, body) except -1:
        """The records are on disk, as kstore.flush.policy=always requires."""
        if not self.done:
            self.one_done()
        return 0

    cdef int one_done(self) except -1:
        self.remaining -= 1
        if self.remaining == 0:
            self.owner.drop(self)
            self.sink.close_answer(self)
        return 0

    cdef int expire(self) except -1:
        return self.stop_waiting(REQUEST_TIMED_OUT)

    cdef int stop_waiting(self, int16_t error) except -1:
        """Stop waiting; the partitions that were waited for get the error."""
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
        self.owner.drop(self)
        return self.stop_waiting(NONE)

    cdef int tell_leader(self, PartWait wait) except -1:
        """Insert the leader's tag (KIP-951) as the partition's first tag."""
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


cdef class ProduceWaits(SlotDeadlines):
    """All Produce responses that wait."""

    @property
    def parked(self):
        """The number of responses that wait."""
        return len(self.waiting)

    cdef ProduceSlot park(
        self, AnswerSink sink, int32_t correlation_id, bint flexible, AnswerBuffer answer,
        list waits, int32_t timeout_ms, bint durable
    ):
        """The slot of an encoded answer that waits for these, and for the disk if needed."""
        cdef ProduceSlot slot = ProduceSlot.__new__(ProduceSlot)
        cdef PartWait wait
        slot.sink = sink
        slot.correlation_id = correlation_id
        slot.flexible = flexible
        slot.held = answer
        slot.owner = self
        slot.waits = waits
        slot.remaining = len(waits) + durable
        for wait in waits:
            wait.slot = slot
            wait.partition.replication.add_wait(wait)
            wait.partition.replication.note_pipelined(1 + sink.waiting())
        self.add(slot, timeout_ms)
        return slot
