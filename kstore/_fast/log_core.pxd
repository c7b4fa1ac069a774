# The append and look-up core of one topic-partition's log: what must run in C for every batch. It holds the log's
# offsets, the active segment with the tail of its index that is not yet in LMDB, the producer table and the
# leader-epoch cache. Rolling, retention, recovery and everything rare is kstore/log/log.py, which owns it.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.segment_file cimport SegmentFile

cdef enum AppendOrigin:
    ORIGIN_CLIENT = 0               # offsets are assigned; producer sequences checked; one batch or many
    ORIGIN_COORDINATOR = 1          # as CLIENT, control batches allowed
    ORIGIN_REPLICA = 2              # offsets and epochs are taken as they are
    ORIGIN_GIVEN_OFFSETS = 3        # KIP-391: base offset >= log end offset, epochs assigned

cdef struct AppendResult:
    int16_t error_code              # Kafka's; 0 is NONE. Decisions are values; only I/O raises
    int64_t base_offset             # of the first batch (or of the duplicate's original)
    int64_t last_offset
    int64_t log_append_time_ms      # -1 with CreateTime
    int64_t log_start_offset
    int64_t log_end_offset          # after the append
    bint duplicate

cdef struct Slice:
    int64_t position                # in the segment file
    int64_t size_bytes              # whole batches, (except Kafka's max-bytes rule, see locate)
    int64_t base_offset             # of the first batch in it
    int64_t next_offset             # offset after the last whole batch in it

cdef class LogCore:
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset

    # data is changed in place (offsets, epoch). Rolls through the owner when it must. Raises OSError only.
    cdef int append(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch, int origin,
                    AppendResult* out) except -1

    # The longest run of whole batches from the one that holds offset, in one segment, below max_offset,
    # of at most max_bytes (at least one whole batch when min_one). Returns the file, or None where there
    # is nothing to read at offset (offset == max_offset); out_of_range is set when offset is outside
    # [log_start_offset, log_end_offset].
    cdef SegmentFile locate(self, int64_t offset, int64_t max_offset, int64_t max_bytes, bint min_one,
                            Slice* out, bint* out_of_range)
