# The append core of one topic-partition's log: what must run in C for every batch. LogView has
# its offsets, its segments and the look-up. Rolling is its owner's, LocalLog; retention, recovery
# and everything rare is what kstore.log builds on that.

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.log.append_plan cimport AppendPlan, AppendResult
from kstore._fast.log.log_view cimport LogView
from kstore._fast.record.builder cimport RecordBatchBuilder
from kstore._fast.record.unpack cimport Verdict

cdef class AppendInfo:
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly int64_t log_start_offset
    cdef readonly bint duplicate

cdef class LogCore(LogView):
    cdef AppendPlan plan                    # the batches of the append under way, and the limits
    cdef int64_t segment_ms
    cdef int64_t segment_index_entries
    # or open for reading only: append answers KAFKA_STORAGE_ERROR
    cdef readonly bint closed
    cdef bint dirty
    # callable() after each append, outside the lock; or None
    cdef public object on_append
    cdef object clock                       # None: the machine's
    cdef PyThread_type_lock lock
    cdef unsigned long holder
    cdef int depth
    cdef bint appending
    cdef uint8_t* scratch                   # append_record builds here
    cdef Py_ssize_t scratch_room
    cdef RecordBatchBuilder spare

    # data is changed in place (offsets, epoch). Rolls through the owner when it must. Raises
    # OSError only.
    cdef int append(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch, int origin,
                    AppendResult* out) except -1
    # The same for one batch that a thread has looked into, if it is compressed; a verdict without a
    # status says how much may be decompressed here. None: as append.
    cdef int append_seen(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch,
                         int origin, Verdict seen, AppendResult* out) except -1
    cdef int acquire(self) except -1
    cdef int release(self) except -1
    cdef int64_t now_ms(self) except -2
    cdef int append_locked(self, uint8_t* data, Py_ssize_t size, int32_t leader_epoch,
                           int origin, bint trusted, int64_t now,
                           AppendResult* out) except -1
    cdef int append_planned(self, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int origin,
                            bint trusted, int64_t now, AppendResult* out) except -1
    cdef bint must_roll(self, Py_ssize_t size, int64_t now) noexcept
    cdef int64_t roll_offset(self) noexcept
    cdef int commit(self, int64_t position) except -1
    cdef int build_and_append(self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
                              Py_ssize_t value_size, int64_t time_ms, int32_t leader_epoch,
                              int64_t now, AppendResult* out) except -1
    cdef int fill(self, RecordBatchBuilder builder, records, bytearray earlier,
                  int64_t base_offset) except -1
