# Reads records from batches: the parser of one record, and the cursor that goes from batch to
# batch.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kstore._fast.record.batch cimport BatchInfo
from kstore._fast.record.batch_view cimport BatchView
from kstore._fast.record.buffer cimport read_varint, read_varlong

# The places of one record's parts. Sizes of -1 are null.
cdef struct RecordFields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size
    int32_t value_size
    int32_t header_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* end              # of the record

# One record at p; reads nothing from end on. False if its framing does not fit. It does not check
# the framing of headers: next_header does.
cdef inline bint parse_record(const uint8_t* p, const uint8_t* end,
                              RecordFields* out) noexcept nogil:
    cdef int32_t length
    cdef int n = read_varint(p, end, &length)
    if n == 0 or length < 6 or length > end - p - n:
        return False
    p += n
    end = p + length
    out.end = end
    p += 1                          # the record's attributes: unused
    n = read_varlong(p, end, &out.timestamp_delta)
    if n == 0:
        return False
    p += n
    n = read_varint(p, end, &out.offset_delta)
    if n == 0:
        return False
    p += n
    n = read_varint(p, end, &out.key_size)
    if n == 0 or out.key_size < -1 or out.key_size > end - p - n:
        return False
    p += n
    out.key = p
    if out.key_size > 0:
        p += out.key_size
    n = read_varint(p, end, &out.value_size)
    if n == 0 or out.value_size < -1 or out.value_size > end - p - n:
        return False
    p += n
    out.value = p
    if out.value_size > 0:
        p += out.value_size
    n = read_varint(p, end, &out.header_count)
    if n == 0 or out.header_count < 0:
        return False
    out.headers = p + n
    return out.header_count > 0 or out.headers == end


cdef struct HeaderFields:
    const uint8_t* key
    const uint8_t* value
    int32_t key_size
    int32_t value_size              # -1 is null

# The header at p; returns its end, or NULL if it does not fit.
cdef inline const uint8_t* next_header(
        const uint8_t* p, const uint8_t* end, HeaderFields* out) noexcept nogil:
    cdef int n = read_varint(p, end, &out.key_size)
    if n == 0 or out.key_size < 0 or out.key_size > end - p - n:
        return NULL
    out.key = p + n
    p = out.key + out.key_size
    n = read_varint(p, end, &out.value_size)
    if n == 0 or out.value_size < -1 or out.value_size > end - p - n:
        return NULL
    out.value = p + n
    return out.value + (out.value_size if out.value_size > 0 else 0)


# Goes through the batches of a buffer that a reader may see; records.pyi (decode) says what it
# skips.
cdef class BatchCursor:
    cdef readonly BatchView batch           # the current one
    cdef object view
    cdef const uint8_t* start
    cdef const uint8_t* end
    cdef Py_ssize_t position                # of the next batch
    cdef int64_t start_offset
    cdef int64_t end_offset                 # exclusive
    cdef int64_t max_decompressed_bytes
    cdef bint verify
    cdef bint control
    cdef list aborted  # (first offset, producer id), descending: those still to come
    cdef set aborting                       # producer ids with an open aborted transaction
    # The records of the current batch: p..stop, remaining of them.
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef int32_t remaining

    cdef bint next_batch(self) except -1
    cdef bint _is_hidden(self, const BatchInfo* info) except -1
    cdef int _open(self, const BatchInfo* info) except -1
    # The next record at or after start_offset and before end_offset: 1; none left: 0.
    cdef int next_record(self, RecordFields* out) except -1

cdef inline int64_t record_timestamp(const BatchInfo* info,
                                     const RecordFields* fields) noexcept nogil:
    if info.attributes & 0x08:              # LogAppendTime
        return info.max_timestamp
    return <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>fields.timestamp_delta)
