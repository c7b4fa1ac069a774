# The record batch (magic 2): header, CRC, the walk that checks the framing of every record, and
# in-place assignment of the fields that a broker sets. It opens no file and creates no Python
# object; records.pyx decodes, builder.pyx builds, batch_view.pyx is the view for Python.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, INVALID_PRODUCE_OFFSET, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    NONE, UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_FOR_MESSAGE_FORMAT)
from kstore._fast.record.buffer cimport (
    load_int16, load_int32, load_int64, load_uint32, read_varint, read_varlong, store_int16,
    store_int32, store_int64, store_uint32,
)
from kstore._fast.record.compression cimport (
    COMPRESSION_ZSTD, MAX_DECOMPRESSED_BYTES, decompress_memory,
)
from kstore._fast.record.crc32c cimport crc32c
from kstore._fast.record.memory cimport MemoryView, view_of

from kstore._fast.record.compression import CompressionError

cdef enum:
    SMALLEST_RECORD = 7                 # length, attributes, two deltas, key, value, header count
    PLAIN_BYTES = 14                    # the maximum size of all numbers of a record without a key
    NO_KEY = 1                          # the size -1
    BEHIND_KEY_BYTES = 4                # the maximum size of the numbers after a key
    RELEASE_GIL_ABOVE = 32768
    LONGEST_VARINT = 5

DEFAULT_MAX_DECOMPRESSED_BYTES = MAX_DECOMPRESSED_BYTES

# BatchStatus -> (name, what was wrong and what to do)
STATUSES = (
    ("OK", "the batch is good"),
    ("TRUNCATED", "the batch ends before its length says: send or fetch it whole"),
    ("BAD_LENGTH", "the length is smaller than a batch header: the bytes are not a record batch"),
    ("BAD_MAGIC",
     "the magic is not 2: use a client that writes record batches (Kafka 0.11 or later)"),
    ("BAD_CRC", "the checksum does not match: the bytes were damaged on their way"),
    ("BAD_ATTRIBUTES", "the attributes name an unknown compression type"),
    ("BAD_COUNT", "records count and last offset delta do not agree, or the batch is empty"),
    ("BAD_OFFSET_DELTA", "the records' offset deltas are not 0, 1, 2 and so on"),
    ("BAD_TIMESTAMP", "the max timestamp is not the largest timestamp of the records"),
    ("BAD_RECORD", "a record's length, key, value or headers do not fit its bytes"),
    ("BAD_PRODUCER", "producer id, epoch and base sequence do not go together"),
    ("BAD_COMPRESSION", "the records cannot be decompressed, or hold more than the bound"),
    ("NOT_MONOTONIC", "the base offset is below the offset that is next in the log"),
    ("TOO_LARGE", "the batch is larger than the limit"),
)
STATUS_NAMES = tuple(row[0] for row in STATUSES)


class InvalidBatchError(ValueError):
    """An invalid batch: the failed check, its position, and what to do."""

    def __init__(self, int status, Py_ssize_t position, str detail=""):
        name, sentence = STATUSES[status]
        text = f"record batch at byte {position} is invalid ({name}): {sentence}"
        super().__init__(f"{text} ({detail})" if detail else text)
        self.status = name
        self.error_code = batch_error_code(status)
        self.position = position


cdef int read_batch_header(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil:
    cdef Py_ssize_t available = end - p
    cdef int32_t length
    if available < BATCH_PREFIX_SIZE:
        return BATCH_TRUNCATED
    length = load_int32(p + BATCH_LENGTH_AT)
    if available > BATCH_MAGIC_AT and length > BATCH_MAGIC_AT - BATCH_PREFIX_SIZE:
        if p[BATCH_MAGIC_AT] != MAGIC_V2:
            return BATCH_BAD_MAGIC
    if length < BATCH_HEADER_SIZE - BATCH_PREFIX_SIZE or length > 0x7FFFFFFF - BATCH_PREFIX_SIZE:
        return BATCH_BAD_LENGTH
    if available < BATCH_HEADER_SIZE:
        return BATCH_TRUNCATED
    out.base_offset = load_int64(p)
    out.size_bytes = length + BATCH_PREFIX_SIZE
    out.partition_leader_epoch = load_int32(p + BATCH_LEADER_EPOCH_AT)
    out.crc = load_uint32(p + BATCH_CRC_AT)
    out.attributes = load_int16(p + BATCH_ATTRIBUTES_AT)
    out.last_offset_delta = load_int32(p + BATCH_LAST_OFFSET_DELTA_AT)
    out.base_timestamp = load_int64(p + BATCH_BASE_TIMESTAMP_AT)
    out.max_timestamp = load_int64(p + BATCH_MAX_TIMESTAMP_AT)
    out.producer_id = load_int64(p + BATCH_PRODUCER_ID_AT)
    out.producer_epoch = load_int16(p + BATCH_PRODUCER_EPOCH_AT)
    out.base_sequence = load_int32(p + BATCH_BASE_SEQUENCE_AT)
    out.records_count = load_int32(p + BATCH_COUNT_AT)
    return BATCH_TRUNCATED if out.size_bytes > available else BATCH_OK


cdef int check_batch(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil:
    cdef int status = read_batch_header(p, end, out)
    if status != BATCH_OK:
        return status
    if out.crc != crc32c(p + BATCH_CRC_START, out.size_bytes - BATCH_CRC_START):
        return BATCH_BAD_CRC
    return BATCH_OK


cdef inline int _check_count(const BatchInfo* info) noexcept nogil:
    if info.records_count <= 0 or info.records_count - 1 != info.last_offset_delta:
        return BATCH_BAD_COUNT
    if not is_compressed(info):
        if info.records_count > (info.size_bytes - BATCH_HEADER_SIZE) // SMALLEST_RECORD:
            return BATCH_BAD_COUNT
    return BATCH_OK


# Without a producer id, epoch and sequence have no meaning (clients send 0 or -1). A coordinator's
# batch may be transactional without a sequence, and control batches have none.
cdef inline int _check_producer(const BatchInfo* info) noexcept nogil:
    if info.producer_id == -1:
        return BATCH_BAD_PRODUCER if is_transactional(info) else BATCH_OK
    if info.producer_id < 0 or info.producer_epoch < 0 or info.base_sequence < -1:
        return BATCH_BAD_PRODUCER
    if info.base_sequence == -1 and not (is_transactional(info) or is_control(info)):
        return BATCH_BAD_PRODUCER
    return BATCH_OK


cdef int validate_batch(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil:
    cdef int status = check_batch(p, end, out)
    return validate_summed(p, out) if status == BATCH_OK else status


cdef int validate_summed(const uint8_t* p, BatchInfo* out) noexcept nogil:
    cdef int64_t max_timestamp
    cdef int status
    if (out.attributes & COMPRESSION_MASK) > COMPRESSION_ZSTD:
        return BATCH_BAD_ATTRIBUTES
    status = _check_count(out)
    if status == BATCH_OK:
        status = _check_producer(out)
    if status != BATCH_OK or is_compressed(out):
        return status
    status = walk_records(p + BATCH_HEADER_SIZE, p + out.size_bytes, out.records_count,
                          out.base_timestamp, &max_timestamp)
    return _check_max_timestamp(out, max_timestamp) if status == BATCH_OK else status


# With LogAppendTime every record's time is the max timestamp, regardless of its delta.
cdef inline int _check_max_timestamp(BatchInfo* info, int64_t max_timestamp) noexcept nogil:
    if is_log_append_time(info) or info.max_timestamp == max_timestamp:
        return BATCH_OK
    info.max_timestamp = max_timestamp
    return BATCH_BAD_TIMESTAMP


# A varint size and its bytes; -1 is null if nullable. Returns the end, or NULL.
cdef inline const uint8_t* _skip_bytes(const uint8_t* p, const uint8_t* end,
                                       int32_t least) noexcept nogil:
    cdef int32_t size
    cdef int n = read_varint(p, end, &size)
    if n == 0 or size < least:
        return NULL
    p += n
    if size > end - p:
        return NULL
    return p + size if size > 0 else p


cdef const uint8_t* _skip_headers(const uint8_t* p, const uint8_t* end,
                                  int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        p = _skip_bytes(p, end, 0)
        if p == NULL:
            return NULL
        p = _skip_bytes(p, end, -1)
        if p == NULL:
            return NULL
    return p


# A zigzag varint of at most three bytes, all of which exist. Returns the bytes read, or 0 if it is
# longer.
cdef inline int _read_short(const uint8_t* p, int32_t* out) noexcept nogil:
    cdef uint32_t raw = p[0]
    cdef int n = 1
    if raw >= 0x80:
        raw = (raw & 0x7F) | <uint32_t>p[1] << 7
        n = 2
        if p[1] >= 0x80:
            if p[2] >= 0x80:
                return 0
            raw = (raw & 0x3FFF) | <uint32_t>p[2] << 14
            n = 3
    out[0] = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
    return n


# As _walk_record, for most records: without headers, and with short numbers. False: use
# _walk_record; nothing was changed.
cdef inline bint _walk_plain(const uint8_t* p, const uint8_t* stop,
                             RecordWalk* walk) noexcept nogil:
    cdef int32_t timestamp_delta, offset_delta, key_size, size
    cdef int n
    if stop - p < PLAIN_BYTES or (stop - 1)[0] != 0:
        return False
    n = _read_short(p + 1, &timestamp_delta)
    if n == 0:
        return False
    p += 1 + n
    n = _read_short(p, &offset_delta)
    if n == 0 or offset_delta != walk.index:
        return False
    p += n
    if p[0] == NO_KEY:
        key_size = -1
        p += 1
    else:
        n = _read_short(p, &key_size)
        if n == 0 or key_size < 0 or key_size > stop - p - n - BEHIND_KEY_BYTES:
            return False
        p += n + key_size
    n = _read_short(p, &size)
    if n == 0 or size < 0 or stop - p != n + size + 1:
        return False
    if timestamp_delta > walk.largest or walk.index == 0:
        walk.largest = timestamp_delta
    if key_size < 0:
        walk.keyless = True
    walk.index += 1
    return True


# One record whose bytes after the length are p..stop.
cdef inline int _walk_record(const uint8_t* p, const uint8_t* stop,
                             RecordWalk* walk) noexcept nogil:
    cdef int64_t timestamp_delta
    cdef int32_t offset_delta, headers, key_size
    cdef int n
    p += 1                                  # the record's attributes: unused, any value
    n = read_varlong(p, stop, &timestamp_delta)
    if n == 0:
        return BATCH_BAD_RECORD
    p += n
    if walk.index == 0 or timestamp_delta > walk.largest:
        walk.largest = timestamp_delta
    n = read_varint(p, stop, &offset_delta)
    if n == 0:
        return BATCH_BAD_RECORD
    if offset_delta != walk.index:
        return BATCH_BAD_OFFSET_DELTA
    p += n
    if read_varint(p, stop, &key_size) and key_size < 0:
        walk.keyless = True
    p = _skip_bytes(p, stop, -1)
    if p == NULL:
        return BATCH_BAD_RECORD
    p = _skip_bytes(p, stop, -1)
    if p == NULL:
        return BATCH_BAD_RECORD
    n = read_varint(p, stop, &headers)
    if n == 0 or headers < 0:
        return BATCH_BAD_RECORD
    p += n
    if headers:
        p = _skip_headers(p, stop, headers)
    if p != stop:
        return BATCH_BAD_RECORD
    walk.index += 1
    return BATCH_OK


cdef Py_ssize_t walk_some(const uint8_t* p, const uint8_t* end, int32_t count, RecordWalk* walk,
                          int* status) noexcept nogil:
    cdef const uint8_t* start = p
    cdef int32_t length
    cdef int n
    status[0] = BATCH_OK
    while walk.index < count:
        n = read_varint(p, end, &length)
        if n == 0:
            if end - p >= LONGEST_VARINT:
                status[0] = BATCH_BAD_RECORD
            break
        if length < SMALLEST_RECORD - 1:
            status[0] = BATCH_BAD_RECORD
            break
        if length > end - p - n:
            break
        if not _walk_plain(p + n, p + n + length, walk):
            status[0] = _walk_record(p + n, p + n + length, walk)
            if status[0] != BATCH_OK:
                break
        p += n + length
    return p - start


cdef int walk_records(const uint8_t* p, const uint8_t* end, int32_t count, int64_t base_timestamp,
                      int64_t* max_timestamp) noexcept nogil:
    cdef RecordWalk walk
    cdef int status
    cdef Py_ssize_t used
    walk.index = walk.keyless = 0
    walk.largest = 0
    used = walk_some(p, end, count, &walk, &status)
    if status != BATCH_OK:
        return status
    if walk.index != count or p + used != end:
        return BATCH_BAD_RECORD
    max_timestamp[0] = _time_after(base_timestamp, walk.largest)
    return BATCH_OK


# As in Java: wraps around, and a batch without times (-1) has deltas of 0.
cdef inline int64_t _time_after(int64_t base_timestamp, int64_t delta) noexcept nogil:
    return <int64_t>(<uint64_t>base_timestamp + <uint64_t>delta)


cdef int check_max_timestamp(BatchInfo* info, int64_t largest_delta) noexcept nogil:
    return _check_max_timestamp(info, _time_after(info.base_timestamp, largest_delta))


cdef int validate_compressed(
        const uint8_t* p, BatchInfo* info, int64_t max_decompressed_bytes) except -1:
    cdef int64_t max_timestamp
    cdef int status
    cdef bytearray records
    cdef const uint8_t* start
    cdef Py_ssize_t size
    try:
        records = decompress_memory(info.attributes & COMPRESSION_MASK, p + BATCH_HEADER_SIZE,
                                    info.size_bytes - BATCH_HEADER_SIZE, max_decompressed_bytes)
    except CompressionError:
        return BATCH_BAD_COMPRESSION
    start = <const uint8_t*><char*>records
    size = len(records)
    if size > RELEASE_GIL_ABOVE:
        with nogil:
            status = walk_records(start, start + size, info.records_count, info.base_timestamp,
                                  &max_timestamp)
    else:
        status = walk_records(start, start + size, info.records_count, info.base_timestamp,
                              &max_timestamp)
    return _check_max_timestamp(info, max_timestamp) if status == BATCH_OK else status


cdef bytearray decompressed_records(
    const uint8_t* p, const BatchInfo* info, Py_ssize_t position
):
    try:
        return decompress_memory(info.attributes & COMPRESSION_MASK, p + BATCH_HEADER_SIZE,
                                 info.size_bytes - BATCH_HEADER_SIZE, MAX_DECOMPRESSED_BYTES)
    except CompressionError as error:
        raise InvalidBatchError(BATCH_BAD_COMPRESSION, position, str(error)) from error


cdef void assign_offset_and_epoch(uint8_t* p, int64_t base_offset,
                                  int32_t leader_epoch) noexcept nogil:
    store_int64(p, base_offset)
    store_int32(p + BATCH_LEADER_EPOCH_AT, leader_epoch)


cdef inline void _store_crc(uint8_t* p, int32_t size_bytes) noexcept nogil:
    store_uint32(p + BATCH_CRC_AT, crc32c(p + BATCH_CRC_START, size_bytes - BATCH_CRC_START))


cdef void assign_log_append_time(uint8_t* p, int64_t timestamp_ms,
                                 int32_t size_bytes) noexcept nogil:
    cdef int16_t attributes = load_int16(p + BATCH_ATTRIBUTES_AT)
    store_int16(p + BATCH_ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE_MASK)
    store_int64(p + BATCH_MAX_TIMESTAMP_AT, timestamp_ms)
    _store_crc(p, size_bytes)


cdef void assign_max_timestamp(uint8_t* p, int64_t timestamp_ms, int32_t size_bytes) noexcept nogil:
    cdef int16_t attributes = load_int16(p + BATCH_ATTRIBUTES_AT)
    store_int16(p + BATCH_ATTRIBUTES_AT, attributes & ~TIMESTAMP_TYPE_MASK)
    store_int64(p + BATCH_MAX_TIMESTAMP_AT, timestamp_ms)
    _store_crc(p, size_bytes)


cdef void write_batch_header(uint8_t* p, const BatchInfo* info) noexcept nogil:
    store_int64(p, info.base_offset)
    store_int32(p + BATCH_LENGTH_AT, info.size_bytes - BATCH_PREFIX_SIZE)
    store_int32(p + BATCH_LEADER_EPOCH_AT, info.partition_leader_epoch)
    p[BATCH_MAGIC_AT] = MAGIC_V2
    store_int16(p + BATCH_ATTRIBUTES_AT, info.attributes)
    store_int32(p + BATCH_LAST_OFFSET_DELTA_AT, info.last_offset_delta)
    store_int64(p + BATCH_BASE_TIMESTAMP_AT, info.base_timestamp)
    store_int64(p + BATCH_MAX_TIMESTAMP_AT, info.max_timestamp)
    store_int64(p + BATCH_PRODUCER_ID_AT, info.producer_id)
    store_int16(p + BATCH_PRODUCER_EPOCH_AT, info.producer_epoch)
    store_int32(p + BATCH_BASE_SEQUENCE_AT, info.base_sequence)
    store_int32(p + BATCH_COUNT_AT, info.records_count)
    _store_crc(p, info.size_bytes)


cdef int16_t batch_error_code(int status) noexcept nogil:
    if status == BATCH_OK:
        return NONE
    if status == BATCH_BAD_MAGIC:
        return UNSUPPORTED_FOR_MESSAGE_FORMAT
    if status == BATCH_BAD_ATTRIBUTES:
        return UNSUPPORTED_COMPRESSION_TYPE
    if status == BATCH_BAD_TIMESTAMP:
        return INVALID_TIMESTAMP
    if status == BATCH_NOT_MONOTONIC:
        return INVALID_PRODUCE_OFFSET       # KIP-391
    if status == BATCH_TOO_LARGE:
        return MESSAGE_TOO_LARGE
    if status == BATCH_TRUNCATED or status == BATCH_BAD_LENGTH or status == BATCH_BAD_CRC:
        return CORRUPT_MESSAGE
    return INVALID_RECORD


def seconds_to_validate(batch, int repeat):
    from time import thread_time

    cdef BatchInfo info
    cdef MemoryView given = view_of(batch)
    cdef const uint8_t* start = given.data
    cdef Py_ssize_t size = given.size
    cdef int status = BATCH_OK
    cdef int i
    begin = thread_time()
    for i in range(repeat):
        status = validate_batch(start, start + size, &info)
    elapsed = thread_time() - begin
    if status != BATCH_OK:
        raise InvalidBatchError(status, 0)
    return elapsed
