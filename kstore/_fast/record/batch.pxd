# The record batch (magic 2): its header in C, validation, and the in-place assignment of offsets.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    BATCH_HEADER_SIZE = 61          # base offset .. records count
    BATCH_PREFIX_SIZE = 12  # base offset (8) and length (4); the length counts what follows it
    BATCH_CRC_START = 21            # the CRC covers attributes .. end
    MAGIC_V2 = 2

cdef enum:                          # the positions of the header's fields
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

# The result of a check; 0 is valid. batch.pyx has a name, a message (STATUS_NAMES) and a Kafka
# error code for each.
cdef enum BatchStatus:
    BATCH_OK = 0
    BATCH_TRUNCATED = 1             # fewer bytes than a header, or than its length
    BATCH_BAD_LENGTH = 2            # length smaller than a header or above the limit
    BATCH_BAD_MAGIC = 3
    BATCH_BAD_CRC = 4
    BATCH_BAD_ATTRIBUTES = 5        # unknown compression
    BATCH_BAD_COUNT = 6  # records count and last offset delta disagree, or zero or negative
    BATCH_BAD_OFFSET_DELTA = 7      # offset deltas are not 0..n-1
    BATCH_BAD_TIMESTAMP = 8  # max timestamp is not the largest of the records'; the rest is valid
    BATCH_BAD_RECORD = 9            # a record's framing (length, key, value, headers) does not fit
    BATCH_BAD_PRODUCER = 10         # producer id, epoch and sequence do not fit together
    BATCH_BAD_COMPRESSION = 11      # cannot be decompressed, or exceeds the limit
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
# producer fields. For a compressed batch this checks only header and CRC; is_compressed(out) then
# says that validate_compressed (below) must walk its records. BATCH_BAD_TIMESTAMP is the last
# check: the rest is valid and out.max_timestamp is the records' true maximum, so a caller may
# correct it as Kafka does (assign_max_timestamp) instead of refusing the batch.
cdef int validate_batch(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil
# The same after check_batch, or where the CRC is known to be right and the header was read.
cdef int validate_summed(const uint8_t* p, BatchInfo* out) noexcept nogil

# The same walk over decompressed record bytes. Takes the GIL (cramjam); limited by
# max_decompressed_bytes.
cdef int validate_compressed(
    const uint8_t* p, BatchInfo* info, int64_t max_decompressed_bytes) except -1

# The records of a compressed batch. Raises InvalidBatchError with the batch's position if they
# can't be decompressed.
cdef bytearray decompressed_records(
    const uint8_t* p, const BatchInfo* info, Py_ssize_t position)

# Only header and CRC (recovery, replicas): no walk over the records.
cdef int check_batch(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil

# Only the walk: count records in p..end with offset deltas 0..count-1. max_timestamp is an output.
cdef int walk_records(const uint8_t* p, const uint8_t* end, int32_t count, int64_t base_timestamp,
                      int64_t* max_timestamp) noexcept nogil

# The state of a walk that can continue.
cdef struct RecordWalk:
    int32_t index                   # records so far; starts at 0
    int64_t largest                 # timestamp delta
    bint keyless                    # a record had no key

# Walks the complete records in p..end, up to count of them in all; returns the bytes used.
cdef Py_ssize_t walk_some(const uint8_t* p, const uint8_t* end, int32_t count, RecordWalk* walk,
                          int* status) noexcept nogil
# BATCH_BAD_TIMESTAMP, as in validate_batch, if the largest delta does not give the maximum.
cdef int check_max_timestamp(BatchInfo* info, int64_t largest_delta) noexcept nogil

# In place; the CRC covers neither field.
cdef void assign_offset_and_epoch(uint8_t* p, int64_t base_offset,
                                  int32_t leader_epoch) noexcept nogil
# In place, with a new CRC: LogAppendTime.
cdef void assign_log_append_time(uint8_t* p, int64_t timestamp_ms,
                                 int32_t size_bytes) noexcept nogil
# In place, with a new CRC: CreateTime with the true maximum.
cdef void assign_max_timestamp(uint8_t* p, int64_t timestamp_ms, int32_t size_bytes) noexcept nogil

# Kafka's error code for a BatchStatus (0 for BATCH_OK).
cdef int16_t batch_error_code(int status) noexcept nogil

# Writes all 61 bytes, including the CRC; the records already follow them. info.crc is ignored.
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
