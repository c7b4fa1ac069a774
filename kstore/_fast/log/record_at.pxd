# Reads a record in place in its batch, for compaction. Inline, because it runs for each record.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport BATCH_HEADER_SIZE, BatchInfo, is_compressed, is_control
from kstore._fast.record.buffer cimport load_int16, read_varint, read_varlong

cdef enum:
    IS_DATA = -2                        # decide() gets this instead of a control type


# A record in place. Sizes of -1 are null.
cdef struct RecordAt:
    const uint8_t* start                # its length field
    const uint8_t* rest                 # from the offset delta on
    const uint8_t* stop
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t* key
    int32_t key_size
    int32_t value_size


# Reads the record at p without its headers. Returns the start of the next one, or NULL.
cdef inline const uint8_t* read_record(
    const uint8_t* p, const uint8_t* end, RecordAt* out
) noexcept nogil:
    cdef int32_t length
    cdef int n = read_varint(p, end, &length)
    if n == 0 or length < 6 or length > end - p - n:
        return NULL
    out.start = p
    p += n
    out.stop = p + length
    n = read_varlong(p + 1, out.stop, &out.timestamp_delta)
    if n == 0:
        return NULL
    p += 1 + n
    out.rest = p
    n = read_varint(p, out.stop, &out.offset_delta)
    if n == 0:
        return NULL
    p += n
    n = read_varint(p, out.stop, &out.key_size)
    if n == 0 or out.key_size < -1 or out.key_size > out.stop - p - n:
        return NULL
    p += n
    out.key = p
    p += out.key_size if out.key_size > 0 else 0
    n = read_varint(p, out.stop, &out.value_size)
    if n == 0 or out.value_size < -1 or out.value_size > out.stop - p - n:
        return NULL
    return out.stop


cdef inline uint8_t record_attributes(const RecordAt* record) noexcept nogil:
    cdef int32_t length
    return record.start[read_varint(record.start, record.stop, &length)]


# The control type (0 abort, 1 commit) of a control batch; -1: its record was removed.
cdef inline int control_type(const uint8_t* p, const BatchInfo* info) noexcept nogil:
    cdef RecordAt record
    if info.records_count <= 0 or is_compressed(info):
        return -1
    if read_record(p + BATCH_HEADER_SIZE, p + info.size_bytes, &record) == NULL:
        return -1
    if record.key_size < 4:
        return -1
    return load_int16(record.key + 2)


# Asks the caller whether a transactional or control batch may be removed.
cdef inline bint may_go(object decide, const uint8_t* p, const BatchInfo* info) except -1:
    return decide(info.producer_id, info.base_offset + info.last_offset_delta,
                  control_type(p, info) if is_control(info) else <int>IS_DATA)
