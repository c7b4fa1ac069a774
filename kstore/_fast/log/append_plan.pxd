# The batches of one append, before they are written.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.log.producer_table cimport ProducerTable
from kstore._fast.log.segment_file cimport iovec
from kstore._fast.record.batch cimport BatchInfo
from kstore._fast.record.unpack cimport Verdict

cdef extern from *:
    const int64_t NO_LIMIT "INT64_MAX"
    const int64_t LARGEST_OFFSET_DELTA "INT32_MAX"      # of a record from its segment's base

cdef enum AppendOrigin:
    # assigned offsets and checked sequences; one batch or several
    ORIGIN_CLIENT = 0
    ORIGIN_COORDINATOR = 1          # as CLIENT, but control batches are allowed
    ORIGIN_REPLICA = 2              # offsets and epochs stay as they are
    ORIGIN_GIVEN_OFFSETS = 3        # KIP-391: base offset >= log end offset, epochs are assigned
    ORIGIN_EXACT = 4                # of an exact copy: as REPLICA, from another cluster's log

cdef inline bint as_they_are(int origin) noexcept nogil:
    return origin == ORIGIN_REPLICA or origin == ORIGIN_EXACT

cdef struct AppendResult:
    int16_t error_code              # Kafka's; 0 is NONE. Refusals are values; only I/O raises
    int64_t base_offset             # the first batch's, or the duplicate's original
    int64_t last_offset
    int64_t log_append_time_ms      # -1 with CreateTime
    int64_t log_start_offset
    int64_t log_end_offset          # after the append
    int64_t end_before              # and before it
    bint duplicate

cdef enum:
    MAX_PIECES = 16

# One client batch of several that one write appends.
cdef struct AppendPiece:
    uint8_t* data                   # changed in place
    Py_ssize_t size
    AppendResult result

cdef class AppendInfo:
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly int64_t log_start_offset
    cdef readonly bint duplicate

cdef AppendInfo make_info(const AppendResult* result)

cdef class AppendPlan:
    # limits from the log's configuration
    cdef int64_t segment_bytes
    cdef int64_t max_message_bytes
    cdef bint log_append_time
    cdef bint compacted             # every record must have a key
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef Verdict seen               # a thread's check of the current batch, or None
    cdef bint summed                # the batches' checksums were checked
    cdef BatchInfo* batches
    cdef int count
    cdef int room
    cdef int make_room(self) except -1
    cdef int16_t analyse(self, uint8_t* data, Py_ssize_t size, int origin, bint trusted) except -1
    cdef int analyse_headers(self, uint8_t* data, Py_ssize_t size, bint check,
                             bint walk) except -1 nogil
    cdef int16_t check_kinds(self, uint8_t* data, int origin) except -1
    cdef int check_packed(self, uint8_t* data, BatchInfo* info) except -1
    cdef bint are_keyed(self, uint8_t* data, BatchInfo* info) except -1
    cdef int16_t check_limits(self, Py_ssize_t size) except -1
    cdef int16_t check_times(self, uint8_t* data, int64_t now) except -1
    # sets the records' timestamps to the clock's
    cdef void take_time(self, int64_t now) noexcept
    cdef int16_t place(
        self, int64_t offset, int32_t epoch, int32_t leader_epoch, int origin) noexcept
    # True: the log already has this client's batch. It is answered as a duplicate, even if limits
    # that were set since then forbid it. If it were refused, its producer would split it and send
    # it again with other sequence numbers.
    cdef bint is_repeated(
        self, ProducerTable producers, int origin, AppendResult* out) except -1
    cdef bint stage(
        self, ProducerTable producers, const uint8_t* data, int origin, AppendResult* out
    ) except -1
    cdef int assign(self, uint8_t* data, Py_ssize_t size, int origin, int64_t now) except -1
    cdef void assign_batches(self, uint8_t* data, int64_t now) noexcept nogil
    cdef int64_t end_offset(self) noexcept
    cdef Py_ssize_t size_bytes(self) noexcept           # of all its batches
    # Plans at most MAX_PIECES separate batches as one append at this offset; each has its own
    # result. Fills the parts to write and returns how many.
    cdef int plan_pieces(
        self, ProducerTable producers, AppendPiece* pieces, int count, int64_t end, int32_t epoch,
        int32_t leader_epoch, int64_t now, iovec* parts) except -1
    cdef bint plan_piece(
        self, ProducerTable producers, AppendPiece* piece, int64_t end, int32_t epoch,
        int32_t leader_epoch, int64_t now) except -1
