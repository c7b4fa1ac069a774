# A Produce answer (acks=all) that waits for the followers.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.replica_state cimport CommitWait
from kstore._fast.broker.slots cimport AnswerSink, Slot
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef class PartWait(CommitWait):            # one partition of a request
    cdef ProduceSlot slot                   # None: it waits no more
    cdef Partition partition
    cdef Py_ssize_t error_at                # where the answer has its error code
    cdef Py_ssize_t tags_at                 # and its tagged fields; -1: none that tell a leader

cdef class ProduceSlot(Slot):
    cdef ProduceWaits owner
    cdef list waits                         # PartWait
    cdef int remaining                      # what the answer waits for
    cdef int64_t deadline_ms
    cdef int one_done(self) except -1
    cdef int stop_waiting(self, int16_t error) except -1
    cdef int tell_leader(self, PartWait wait) except -1

cdef class ProduceWaits:
    cdef PartitionTable table
    cdef object call_later                  # None: nothing times out
    cdef dict waiting                       # ProduceSlot -> None
    cdef object timer
    cdef int64_t timer_ms                   # when it goes off
    cdef ProduceSlot park(
        self, AnswerSink sink, int32_t correlation_id, bint flexible, AnswerBuffer answer,
        list waits, int32_t timeout_ms, bint durable)
    cdef int set_timer(self, int64_t deadline_ms, int64_t now_ms) except -1
