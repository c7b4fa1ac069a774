"""One partition's part of a Fetch answer, as a follower reads it: from bytes to a struct.

It appends nothing and knows no connection (replica_fetcher.pyx does).
"""

from kstore._fast.record.batch cimport (
    BATCH_LEADER_EPOCH_AT, BATCH_LENGTH_AT, BATCH_MAGIC_AT, BATCH_PREFIX_SIZE)
from kstore._fast.record.buffer cimport load_int32, load_int64
from kstore._fast.protocol.wire cimport (
    WireBytes, read_bytes, read_int16, read_int32, read_int64, read_raw, read_unsigned, skip_tags)

cdef enum:
    DIVERGING_EPOCH_TAG = 0


cdef Py_ssize_t whole_batches(
    const uint8_t* data, Py_ssize_t size, int32_t leader_epoch, bint* later
) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef int64_t length
    later[0] = False
    while size - at >= BATCH_PREFIX_SIZE:
        length = load_int32(data + at + BATCH_LENGTH_AT)
        if length <= 0 or BATCH_PREFIX_SIZE + length > size - at:
            # The append refuses an invalid length.
            return size if length <= 0 else at
        if BATCH_PREFIX_SIZE + length >= BATCH_MAGIC_AT \
                and load_int32(data + at + BATCH_LEADER_EPOCH_AT) > leader_epoch:
            later[0] = True
            return at
        at += BATCH_PREFIX_SIZE + length
    return at


cdef int read_part(WireReader* r, FetchedPart* part) noexcept:
    cdef Py_ssize_t i, count
    cdef WireBytes records
    part.index = read_int32(r)
    part.error = read_int16(r)
    part.high_watermark = read_int64(r)
    read_int64(r)                                   # last stable offset
    part.log_start_offset = read_int64(r)
    count = <int32_t>(read_unsigned(r) - 1)         # aborted transactions
    for i in range(count):
        read_raw(r, 16)
        skip_tags(r, True)
        if r.bad:
            return 0
    read_int32(r)                                   # preferred read replica
    records = read_bytes(r, True)
    part.records = records.data
    part.records_size = max(records.size, <Py_ssize_t>0)
    part.diverging_epoch = -1
    part.diverging_end_offset = -1
    read_part_tags(r, part)
    return 0


cdef int read_part_tags(WireReader* r, FetchedPart* part) noexcept:
    cdef int32_t i
    cdef int32_t count = <int32_t>read_unsigned(r)
    cdef int64_t tag
    cdef WireBytes field
    for i in range(count):
        tag = read_unsigned(r)
        field = read_raw(r, <Py_ssize_t>read_unsigned(r))
        if r.bad:
            return 0
        if tag == DIVERGING_EPOCH_TAG and field.size >= 12:
            part.diverging_epoch = load_int32(field.data)
            part.diverging_end_offset = load_int64(field.data + 4)
    return 0
