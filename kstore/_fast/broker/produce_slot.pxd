# A partition's part of a Produce answer, and an answer (acks=all) that waits for the followers.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.replica_state cimport CommitWait
from kstore._fast.broker.slots cimport AnswerSink, Slot, SlotDeadlines
from kstore._fast.protocol.wire cimport AnswerBuffer

# The details of a refused batch in an answer, besides its error code.
cdef enum ProduceWords:
    NO_WORDS = 0
    HOLDS_TOO_MUCH = 1              # its records expand to more than a batch may contain
    BAD_RECORDS = 2                 # invalid records (KIP-467)
    NO_BATCH = 3
    IS_A_COPY = 4                   # an exact copy accepts only its source's batches, others none

# The values of a partition's answer; -1 is unknown.
cdef struct ProduceOffsets:
    int64_t base_offset
    int64_t log_append_time_ms
    int64_t log_start_offset
    int64_t log_end_offset          # only for given offsets (KIP-391)
    int64_t wait_offset             # the high watermark to wait for; -1: none
    ProduceWords words

# One partition's answer. faults, for BAD_RECORDS: (index in the batch, words). Returns the place of
# its tagged fields; -1: they have no leader.
cdef Py_ssize_t put_partition(
    AnswerBuffer out, int version, int32_t index, int16_t error, ProduceOffsets* offsets,
    Partition partition, list faults) except -2

# Whether the answer names the leader: if the client asked the wrong broker (KIP-951) or has an old
# epoch.
cdef bint tells_leader(int version, int16_t error, Partition partition) noexcept

cdef class PartWait(CommitWait):            # one partition of a request
    cdef ProduceSlot slot                   # None: it no longer waits
    cdef Partition partition
    cdef Py_ssize_t error_at                # the place of its error code in the answer
    cdef Py_ssize_t tags_at                 # and of its tagged fields; -1: no leader in them

cdef class ProduceSlot(Slot):
    cdef ProduceWaits owner
    cdef list waits                         # PartWait
    cdef int remaining                      # the partitions that the answer waits for
    cdef int one_done(self) except -1
    cdef int stop_waiting(self, int16_t error) except -1
    cdef int tell_leader(self, PartWait wait) except -1

cdef class ProduceWaits(SlotDeadlines):
    cdef ProduceSlot park(
        self, AnswerSink sink, int32_t correlation_id, bint flexible, AnswerBuffer answer,
        list waits, int32_t timeout_ms, bint durable)
