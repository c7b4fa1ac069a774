# The record batch (magic 2): its header in C, validation, and the in-place assignment of offsets.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    BATCH_HEADER_SIZE = 61          # base offset .. records count
    BATCH_PREFIX_SIZE = 12  # base offset (8) and length (4); the length counts what follows it
    BATCH_CRC_START = 21            # the CRC covers attributes .. end
    MAGIC_V2 = 2

cdef enum:                          # where the header's fields lie
    BATCH_LENGTH_AT = 8
    BATCH_LEADER_EPOCH_AT = 12
    BATCH_MAGIC_AT = 16
    BATCH_CRC_AT = 17
    BATCH_ATTRIBUTES_AT = 21
    BATCH_LAST_OFFSET_DELTA_AT = 23
    BATCH_BASE_TIMESTAMP_AT = 27
    BATCH_MAX_TIMESTAMP_AT = 35
    BATCH_PRODUCER_ID_AT = 43
    BATCH_PRODUCER_EPOCH_AT = 51
    BATCH_BASE_SEQUENCE_AT = 53
    BATCH_COUNT_AT = 57

cdef enum:                          # attributes
    COMPRESSION_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    TRANSACTIONAL_MASK = 0x10
    CONTROL_MASK = 0x20
    DELETE_HORIZON_MASK = 0x40

# What a check found; 0 is fine. batch.pyx gives each a name and a sentence (STATUS_NAMES), and its
# Kafka error code.
cdef enum BatchStatus:
    BATCH_OK = 0
    BATCH_TRUNCATED = 1             # fewer bytes than the header or its length says
    BATCH_BAD_LENGTH = 2            # length smaller than a header or above the limit given
    BATCH_BAD_MAGIC = 3
    BATCH_BAD_CRC = 4
    BATCH_BAD_ATTRIBUTES = 5        # unknown compression
    BATCH_BAD_COUNT = 6  # records count and last offset delta disagree, or zero or negative
    BATCH_BAD_OFFSET_DELTA = 7      # offset deltas are not 0..n-1
    BATCH_BAD_TIMESTAMP = 8  # max timestamp is not the largest of the records'; all else is good
    BATCH_BAD_RECORD = 9            # a record's framing (length, key, value, headers) does not fit
    BATCH_BAD_PRODUCER = 10         # producer id, epoch and sequence do not go together
    BATCH_BAD_COMPRESSION = 11      # cannot be decompressed, or to more than the bound
    BATCH_NOT_MONOTONIC = 12        # given-offset mode: base offset < expected
    BATCH_TOO_LARGE = 13            # size_bytes > limit

cdef struct BatchInfo:
    int64_t base_offset
    int32_t size_bytes              # whole batch, prefix included
    int32_t partition_leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t records_count

# Header only, no CRC: BATCH_OK, BATCH_TRUNCATED, BATCH_BAD_LENGTH or BATCH_BAD_MAGIC. Never reads
# past end.
cdef int read_batch_header(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil

# One full pass over one batch: header, CRC, attributes, count, deltas, timestamps, framing,
# producer fields. A compressed batch is checked up to its header and CRC here; is_compressed(out)
# then says that validate_compressed (below) has to walk its records. BATCH_BAD_TIMESTAMP comes
# last: all else is good and out.max_timestamp is the records' true maximum, so a caller may do as
# Kafka does and put it right (assign_max_timestamp) instead of refusing the batch.
cdef int validate_batch(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil
# The same after check_batch, or where the CRC is known to be right and the header was read.
cdef int validate_summed(const uint8_t* p, BatchInfo* out) noexcept nogil

# The same walk over decompressed record bytes. Takes the GIL (cramjam); bounded by
# max_decompressed_bytes.
cdef int validate_compressed(
    const uint8_t* p, BatchInfo* info, int64_t max_decompressed_bytes) except -1

# The records of a compressed batch; InvalidBatchError, which names the batch's position, where they
# can't be had.
cdef bytearray decompressed_records(
    const uint8_t* p, const BatchInfo* info, Py_ssize_t position)

# Header and CRC alone (recovery, replicas): no walk over the records.
cdef int check_batch(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil

# The walk alone: count records in p..end with offset deltas 0..count-1. max_timestamp is an output.
cdef int walk_records(const uint8_t* p, const uint8_t* end, int32_t count, int64_t base_timestamp,
                      int64_t* max_timestamp) noexcept nogil

# A walk that goes on where it stopped: how far it has come.
cdef struct RecordWalk:
    int32_t index                   # records so far; it begins with 0
    int64_t largest                 # timestamp delta
    bint keyless                    # a record had no key

# Walks the whole records that stand in p..end, up to count of them in all; returns the bytes used.
cdef Py_ssize_t walk_some(const uint8_t* p, const uint8_t* end, int32_t count, RecordWalk* walk,
                          int* status) noexcept nogil
# BATCH_BAD_TIMESTAMP, as validate_batch has it, where the largest delta does not give the maximum.
cdef int check_max_timestamp(BatchInfo* info, int64_t largest_delta) noexcept nogil

# In place; neither field is under the CRC.
cdef void assign_offset_and_epoch(uint8_t* p, int64_t base_offset,
                                  int32_t leader_epoch) noexcept nogil
# In place, CRC made anew: LogAppendTime.
cdef void assign_log_append_time(uint8_t* p, int64_t timestamp_ms,
                                 int32_t size_bytes) noexcept nogil
# In place, CRC made anew: CreateTime with the true maximum.
cdef void assign_max_timestamp(uint8_t* p, int64_t timestamp_ms, int32_t size_bytes) noexcept nogil

# Kafka's error code for a BatchStatus (0 for BATCH_OK).
cdef int16_t batch_error_code(int status) noexcept nogil

# Writes all 61 bytes, CRC included; the records lie behind them already. info.crc is ignored.
cdef void write_batch_header(uint8_t* p, const BatchInfo* info) noexcept nogil

cdef inline bint is_compressed(const BatchInfo* info) noexcept nogil:
    return (info.attributes & COMPRESSION_MASK) != 0

cdef inline bint is_transactional(const BatchInfo* info) noexcept nogil:
    return (info.attributes & TRANSACTIONAL_MASK) != 0

cdef inline bint is_control(const BatchInfo* info) noexcept nogil:
    return (info.attributes & CONTROL_MASK) != 0

cdef inline bint is_log_append_time(const BatchInfo* info) noexcept nogil:
    return (info.attributes & TIMESTAMP_TYPE_MASK) != 0

# Given-offset mode: the batch starts at or after expected_offset and its last offset fits in 64
# bits.
cdef inline int check_monotonic(const BatchInfo* info, int64_t expected_offset) noexcept nogil:
    if info.base_offset < expected_offset or info.base_offset < 0:
        return BATCH_NOT_MONOTONIC
    if info.base_offset > <int64_t>0x7FFFFFFF00000000 - info.last_offset_delta:
        return BATCH_NOT_MONOTONIC
    return BATCH_OK
