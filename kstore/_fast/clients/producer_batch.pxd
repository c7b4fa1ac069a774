# The batch that a producer fills, and the results of its records.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.record.builder cimport RecordBatchBuilder

# Users' threads fill it (accumulator.pyx). When it is closed, it belongs to the sender.
cdef class ProducerBatch(RecordBatchBuilder):
    cdef readonly str topic
    cdef readonly int32_t partition
    # the accumulator's number; for moved records that of the original batch
    cdef readonly int64_t number
    cdef readonly int64_t created_ms        # monotonic
    cdef readonly int64_t first_offset      # given by the user (KIP-391), or -1
    # the topic's number when the batch was created (KIP-253)
    cdef readonly int32_t partition_count
    cdef readonly bint pinned               # the user chose the partition
    cdef readonly bint done
    cdef readonly object error
    cdef readonly int64_t base_offset       # in the log, when it is delivered; -1: unknown
    cdef object owner                       # the accumulator until done, then None
    cdef object queue
    cdef Py_ssize_t accounted               # bytes of buffer.memory
    cdef int64_t mark                       # the number of the call that last added to it
    cdef bint packed                        # it is compressed
    cdef int exports                        # the number of views of its memory
    cdef list callbacks                     # (first index, last index, callable), or None
    cdef object run                         # the callback that consecutive records share, or None
    cdef int32_t run_first
    cdef int32_t run_last
    cdef list waiters                       # callables without arguments, or None
    cdef list moved                         # (batch, index) of each record, or None
    # The sender's state.
    cdef public int attempts
    cdef public int64_t retry_at_ms
    cdef public object last_error
    cdef public bint maybe_written          # the result of an attempt is unknown
    cdef public bint renumbered             # its sequence differs from the first attempt's

    cdef int grow(self, Py_ssize_t room) except -1
    cdef int finish(self) except -1
    cdef int add_callback(self, int32_t index, object callback) except -1
    cdef list take_callbacks(self)

# The result of one record: a batch and an index in it.
cdef class Delivery:
    cdef ProducerBatch batch
    cdef int32_t index

    cdef int settle(self) except -1

cdef Delivery delivery_of(ProducerBatch batch, int32_t index)
