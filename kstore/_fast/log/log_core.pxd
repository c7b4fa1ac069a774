# The append core of one topic-partition's log: what must run in C for every batch. LogView has
# its offsets, its segments and the look-up. Rolling is its owner's, LocalLog; retention, recovery
# and everything rare is what kstore.log builds on that.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.log.append_plan cimport AppendPiece, AppendPlan, AppendResult
from kstore._fast.log.dir_calm cimport DirCalm
from kstore._fast.log.locked_log cimport LockedLog
from kstore._fast.record.builder cimport RecordBatchBuilder
from kstore._fast.record.unpack cimport Verdict

cdef enum:
    DIRECT_BYTES = 65536            # more than this is left to threads, where there are any

cdef class LogCore(LockedLog):
    cdef AppendPlan plan                    # the batches of the append under way, and the limits
    cdef int64_t segment_ms
    cdef int64_t segment_index_entries
    # callable() after each append, outside the lock; or None
    cdef public object on_append
    cdef object clock                       # None: the machine's
    cdef readonly DirCalm calm              # its log dir's
    # the AppendQueue of its log dir, which leaves appends to threads; None: there is none
    cdef readonly object appends
    # What was left to them and is not done, as the loop knows it: nothing may go before it.
    cdef readonly int queued
    cdef int lane                           # that all of it is in
    cdef list held                          # those that wait for `release`; None: none has to
    cdef int64_t given                      # appends that were ever left to threads
    cdef int64_t failed_until               # of them, those up to this number fail
    # Grows when this broker ceases to lead or to follow: what was queued before is refused.
    cdef int64_t term
    cdef bint patient                       # the append under way is a thread's
    cdef bint appending
    cdef uint8_t* scratch                   # append_record builds here
    cdef Py_ssize_t scratch_room
    cdef RecordBatchBuilder spare

    # data is changed in place (offsets, epoch). Rolls through the owner when it must. Raises
    # OSError only.
    cdef int append(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch, int origin,
                    AppendResult* out) except -1
    # The same for one batch that a thread has looked into, if it is compressed; a verdict without a
    # status says how much may be decompressed here. None: as append. term: from a thread that may
    # wait, and only if the term is still that one. summed: the checksums were checked.
    cdef int append_seen(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch,
                         int origin, Verdict seen, AppendResult* out, int64_t term=*,
                         bint summed=*) except -1
    # Client batches that lie apart, by one write. All of `may_append_pieces`; where the write fails
    # it raises, and none of them is appended.
    cdef int append_pieces(self, AppendPiece* pieces, int count, int32_t leader_epoch) except -1
    cdef bint may_append_pieces(self, const AppendPiece* pieces, int count) except -1
    # Whether the loop may append these batches itself: nothing is before them, nothing has to be
    # waited for, and they have at most so many bytes. given: they bring their offsets.
    cdef bint may_append_now(self, const uint8_t* data, Py_ssize_t size, bint given,
                             Py_ssize_t most=*) except -1
    cdef bint stays_in_segment(
        self, const uint8_t* data, Py_ssize_t size, bint given) except -1
    cpdef int64_t append_record(self, value, key, timestamp, headers, int32_t leader_epoch,
                                expected_offset=*) except -1
    cdef int64_t now_ms(self) except -2
    cdef int append_locked(self, uint8_t* data, Py_ssize_t size, int32_t leader_epoch,
                           int origin, bint trusted, int64_t now,
                           AppendResult* out) except -1
    cdef int append_planned(self, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int origin,
                            bint trusted, int64_t now, AppendResult* out) except -1
    cdef bint must_roll(self, Py_ssize_t size, int64_t now) noexcept
    cdef bint is_full(
        self, Py_ssize_t size, int64_t last, int64_t newest, int64_t now) noexcept
    cdef int64_t roll_offset(self) noexcept
    cdef int commit(self, int64_t position) except -1
    cdef int build_and_append(self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
                              Py_ssize_t value_size, int64_t time_ms, int32_t leader_epoch,
                              int64_t now, AppendResult* out) except -1
    cdef int fill(self, RecordBatchBuilder builder, records, bytearray earlier,
                  int64_t base_offset) except -1

# What `Log` inherits: an append of one record costs its caller no Python frame.
cdef class Appender:
    cdef LogCore appends
