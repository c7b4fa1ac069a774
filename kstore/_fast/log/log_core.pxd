# The append core of one log: what must run in C for every batch. LogView has its offsets, its
# segments and the look-up. LocalLog, the owner, rolls segments. kstore.log adds retention, recovery
# and everything rare.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.log.append_plan cimport AppendPiece, AppendPlan, AppendResult
from kstore._fast.log.dir_calm cimport DirCalm
from kstore._fast.log.locked_log cimport LockedLog
from kstore._fast.record.builder cimport RecordBatchBuilder
from kstore._fast.record.unpack cimport Verdict

cdef enum:
    DIRECT_BYTES = 65536            # threads, if there are any, do larger appends

cdef class LogCore(LockedLog):
    cdef AppendPlan plan                    # the batches of the current append, and the limits
    cdef int64_t segment_ms
    cdef int64_t segment_index_entries
    # callable() after each append, outside the lock; or None
    cdef public object on_append
    cdef object clock                       # None: the machine's clock
    cdef readonly DirCalm calm              # its log dir's
    # the AppendQueue of its log dir, whose threads do appends; None: there is none
    cdef readonly object appends
    # The number of appends that threads have not finished, as the loop knows. No append may
    # overtake them.
    cdef readonly int queued
    cdef int lane                           # the lane of all of them
    cdef list held                          # appends that wait for `release`; None: none must wait
    cdef int64_t given                      # the number of appends that were ever queued
    cdef int64_t failed_until               # of those, all up to this number fail
    # Increases when this broker stops leading or following. Appends of an earlier term are refused.
    cdef int64_t term
    cdef bint patient                       # a thread does the current append
    cdef bint appending
    cdef uint8_t* scratch                   # append_record builds here
    cdef Py_ssize_t scratch_room
    cdef RecordBatchBuilder spare

    # Changes data in place (offsets, epoch). Lets the owner roll when necessary. Raises only
    # OSError.
    cdef int append(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch, int origin,
                    AppendResult* out) except -1
    # The same for one batch, which a thread has checked if it is compressed. A verdict without a
    # status limits how much may be decompressed here; None: as append. A thread that may wait gives
    # its term; the append is refused if the log's term differs. summed: the checksums were checked.
    cdef int append_seen(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch,
                         int origin, Verdict seen, AppendResult* out, int64_t term=*,
                         bint summed=*) except -1
    # Appends separate client batches with one write, after `may_append_pieces`. If the write fails,
    # it raises, and no batch is appended.
    cdef int append_pieces(self, AppendPiece* pieces, int count, int32_t leader_epoch) except -1
    cdef bint may_append_pieces(self, const AppendPiece* pieces, int count) except -1
    # Whether the loop may append these batches itself: no append is queued before them, nothing
    # requires waiting, and they have at most this many bytes. given: they have given offsets.
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

# The base of `Log`: an append of one record costs its caller no Python frame.
cdef class Appender:
    cdef LogCore appends
