# The batch that a producer fills, and what became of its records.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.record.builder cimport RecordBatchBuilder

# Filled by accumulator.pyx, in the threads of the users; from the moment it is closed it is the
# sender's.
cdef class ProducerBatch(RecordBatchBuilder):
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t number            # of the accumulator's batches; of its origin if moved
    cdef readonly int64_t created_ms        # monotonic
    cdef readonly int64_t first_offset      # given by the user (KIP-391), or -1
    cdef readonly int32_t partition_count   # the topic's when this batch was begun (KIP-253)
    cdef readonly bint pinned               # its records' partition was given, not chosen
    cdef readonly bint done
    cdef readonly object error
    cdef readonly int64_t base_offset       # in the log, once delivered; -1: not known
    cdef object owner                       # the accumulator until done, then None
    cdef object queue
    cdef Py_ssize_t accounted               # bytes of buffer.memory
    cdef int64_t mark                       # of the call that filled it last
    cdef bint packed                        # compressed already
    cdef int exports                        # views of the memory that others hold
    cdef list callbacks                     # (first index, last index, callable), or None
    cdef object run                         # the callable of the records of a run, or None
    cdef int32_t run_first
    cdef int32_t run_last
    cdef list waiters                       # callables without arguments, or None
    cdef list moved                         # (batch, index) of each record, or None
    # Notes of the sender.
    cdef public int attempts
    cdef public int64_t retry_at_ms
    cdef public object last_error
    cdef public bint maybe_written          # an attempt's outcome is not known
    cdef public bint renumbered             # its sequence is not the one it was first sent with

    cdef int grow(self, Py_ssize_t room) except -1
    cdef int finish(self) except -1
    cdef int add_callback(self, int32_t index, object callback) except -1
    cdef list take_callbacks(self)

# What became of one record: a batch and a place in it.
cdef class Delivery:
    cdef ProducerBatch batch
    cdef int32_t index

    cdef int settle(self) except -1

cdef Delivery delivery_of(ProducerBatch batch, int32_t index)
