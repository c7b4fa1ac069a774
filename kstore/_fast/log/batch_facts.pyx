# Facts about a validated batch's records without decoding them: an end marker's kind, the least
# timestamp, whether all have keys, and which of them may not be appended.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport BATCH_HEADER_SIZE, BatchInfo, COMPRESSION_MASK, is_compressed
from kstore._fast.record.buffer cimport load_int16, load_int32, read_varint, read_varlong
from kstore._fast.record.compression cimport MAX_DECOMPRESSED_BYTES, decompress_memory
from kstore._fast.log.producer_table cimport EndMarker

from kstore._fast.record.compression import CompressionError

cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


# A transaction's end marker: the only record of a control batch of that kind.
cdef bint read_end_marker(const uint8_t* p, const BatchInfo* info, EndMarker* out) noexcept nogil:
    cdef const uint8_t* end = p + info.size_bytes
    cdef int32_t number
    cdef int64_t long_number
    cdef int16_t kind
    cdef int n, i
    p += BATCH_HEADER_SIZE
    n = read_varint(p, end, &number)
    if n == 0 or end - p - n < 1:
        return False
    p += n + 1
    n = read_varlong(p, end, &long_number)
    if n == 0:
        return False
    p += n
    n = read_varint(p, end, &number)
    if n == 0:
        return False
    p += n
    n = read_varint(p, end, &number)
    if n == 0 or number < 4 or number > end - p - n:
        return False
    p += n
    kind = load_int16(p + 2)
    p += number
    n = read_varint(p, end, &number)
    if n == 0 or number < 6 or number > end - p - n or kind < MARKER_ABORT or kind > MARKER_COMMIT:
        return False
    out.commit = kind == MARKER_COMMIT
    out.coordinator_epoch = load_int32(p + n + 2)
    return True


# The least timestamp of an uncompressed batch's records, which were walked before.
cdef int64_t least_timestamp(const uint8_t* p, const BatchInfo* info) noexcept nogil:
    cdef const uint8_t* end = p + info.size_bytes
    cdef int64_t least = 0
    cdef int64_t delta = 0
    cdef int32_t length = 0
    cdef int32_t i
    p += BATCH_HEADER_SIZE
    for i in range(info.records_count):
        p += read_varint(p, end, &length)
        read_varlong(p + 1, end, &delta)
        if i == 0 or delta < least:
            least = delta
        p += length
    return info.base_timestamp + least


# Whether each record of a validated batch has a key.
cdef bint has_keys(const uint8_t* p, const BatchInfo* info) except -1:
    cdef bytearray plain
    if not is_compressed(info):
        return payload_has_keys(p + BATCH_HEADER_SIZE, p + info.size_bytes, info.records_count)
    plain = decompress_memory(info.attributes & COMPRESSION_MASK, p + BATCH_HEADER_SIZE,
                              info.size_bytes - BATCH_HEADER_SIZE, MAX_DECOMPRESSED_BYTES)
    p = <const uint8_t*>PyByteArray_AS_STRING(plain)
    return payload_has_keys(p, p + PyByteArray_GET_SIZE(plain), info.records_count)


cdef bint payload_has_keys(const uint8_t* p, const uint8_t* end, int32_t records) noexcept nogil:
    cdef int32_t length = 0
    cdef int32_t offset_delta = 0
    cdef int32_t key_size = 0
    cdef int64_t time_delta = 0
    cdef const uint8_t* field
    cdef int32_t i
    for i in range(records):
        p += read_varint(p, end, &length)
        field = p + 1
        field += read_varlong(field, end, &time_delta)
        field += read_varint(field, end, &offset_delta)
        read_varint(field, end, &key_size)
        if key_size < 0:
            return False
        p += length
    return True


cdef list record_faults(
    const uint8_t* p, const BatchInfo* info, bint keyed, const TimeRange* times, int64_t max_bytes
):
    cdef bytearray plain
    cdef const uint8_t* end = p + info.size_bytes
    p += BATCH_HEADER_SIZE
    if is_compressed(info):
        try:
            plain = decompress_memory(
                info.attributes & COMPRESSION_MASK, p, end - p, max_bytes)
        except CompressionError:
            return []
        p = <const uint8_t*>PyByteArray_AS_STRING(plain)
        end = p + PyByteArray_GET_SIZE(plain)
    return payload_faults(p, end, info, keyed, times)


cdef list payload_faults(
    const uint8_t* p, const uint8_t* end, const BatchInfo* info, bint keyed,
    const TimeRange* times
):
    cdef list found = []
    cdef int32_t length = 0
    cdef int32_t offset_delta = 0
    cdef int32_t key_size = 0
    cdef int64_t time_delta = 0
    cdef int64_t timestamp
    cdef const uint8_t* field
    cdef int32_t i
    for i in range(info.records_count):
        p += read_varint(p, end, &length)
        field = p + 1
        field += read_varlong(field, end, &time_delta)
        field += read_varint(field, end, &offset_delta)
        read_varint(field, end, &key_size)
        timestamp = info.max_timestamp if times.fixed else info.base_timestamp + time_delta
        if keyed and key_size < 0:
            found.append((i, FAULT_NO_KEY, timestamp))
        elif times.refused:
            found.append((i, FAULT_TIME_TYPE, timestamp))
        elif timestamp != -1 and not times.least_ms <= timestamp <= times.most_ms:
            found.append((i, FAULT_TIME, timestamp))
        p += length
    return found
