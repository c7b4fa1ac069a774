# The first pass of log compaction: puts the keys of batches into the map of each key's last offset.
# It handles whole buffers without the GIL; only transactional, control and compressed batches need
# the caller (kstore/log/retention/cleaner.py), which knows the aborted and committed transactions.
# It opens no file.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.log.offset_map cimport MAP_FULL, MAP_NO_MEMORY, MAP_STORED, OffsetMap
from kstore._fast.log.record_at cimport RecordAt, may_go, read_record
from kstore._fast.record.batch cimport (
    BATCH_BAD_RECORD, BATCH_HEADER_SIZE, BATCH_OK, BATCH_TRUNCATED, BatchInfo, COMPRESSION_MASK,
    CONTROL_MASK, TRANSACTIONAL_MASK, check_batch, decompressed_records, is_compressed, is_control,
    is_transactional)
from kstore._fast.record.memory cimport MemoryView, view_of

from kstore._fast.record.batch import InvalidBatchError


# Puts the keys of p..end (records, decompressed) into the map. A BatchStatus, with the map's in
# `full`.
cdef int _index_records(const uint8_t* p, const uint8_t* end, const BatchInfo* info, OffsetMap into,
                        int64_t start_offset, int* stored) noexcept nogil:
    cdef RecordAt record
    cdef int64_t offset
    cdef int32_t i
    stored[0] = MAP_STORED
    for i in range(info.records_count):
        p = read_record(p, end, &record)
        if p == NULL:
            return BATCH_BAD_RECORD
        offset = info.base_offset + record.offset_delta
        if record.key_size >= 0 and offset >= start_offset:
            stored[0] = into.store(record.key, record.key_size, offset)
            if stored[0] != MAP_STORED:
                return BATCH_OK
    return BATCH_OK


cdef inline int _index_plain(const uint8_t* p, const BatchInfo* info, OffsetMap into,
                             int64_t start_offset, int* stored) noexcept nogil:
    return _index_records(
        p + BATCH_HEADER_SIZE, p + info.size_bytes, info, into, start_offset, stored)


cdef int _index_compressed(const uint8_t* p, const BatchInfo* info, Py_ssize_t position,
                           OffsetMap into, int64_t start_offset, int* stored) except -1:
    cdef bytearray records = decompressed_records(p, info, position)
    cdef const uint8_t* start = <const uint8_t*><char*>records
    cdef Py_ssize_t size = len(records)
    cdef int status
    with nogil:
        status = _index_records(start, start + size, info, into, start_offset, stored)
    return status


def index_batches(data, OffsetMap into, int64_t start_offset, decide):
    cdef MemoryView given = view_of(data)
    cdef Py_ssize_t size = given.size
    cdef const uint8_t* start = given.data
    cdef Py_ssize_t position = 0
    cdef BatchInfo info
    cdef int stored = MAP_STORED
    cdef int status = BATCH_OK
    cdef bint skip
    while position < size and stored == MAP_STORED:
        with nogil:
            while position < size:
                status = check_batch(start + position, start + size, &info)
                if status != BATCH_OK or (info.attributes & (
                        TRANSACTIONAL_MASK | CONTROL_MASK | COMPRESSION_MASK)):
                    break
                status = _index_plain(start + position, &info, into, start_offset, &stored)
                if status != BATCH_OK or stored != MAP_STORED:
                    break
                _indexed(into, &info, start_offset)
                position += info.size_bytes
        if status == BATCH_TRUNCATED or position >= size or stored != MAP_STORED:
            break
        if status == BATCH_OK:
            skip = is_control(&info)
            if is_transactional(&info) or skip:
                skip = may_go(decide, start + position, &info) or skip
            if not skip and info.records_count:
                if is_compressed(&info):
                    status = _index_compressed(
                        start + position, &info, position, into, start_offset, &stored)
                else:
                    status = _index_plain(start + position, &info, into, start_offset, &stored)
        if status != BATCH_OK:
            raise InvalidBatchError(status, position)
        if stored == MAP_STORED:
            _indexed(into, &info, start_offset)
            position += info.size_bytes
    if stored == MAP_NO_MEMORY:
        raise MemoryError()
    return position, stored == MAP_FULL


cdef inline void _indexed(OffsetMap into, const BatchInfo* info,
                          int64_t start_offset) noexcept nogil:
    cdef int64_t last_offset = info.base_offset + info.last_offset_delta
    if last_offset >= start_offset and last_offset > into.latest_offset:
        into.latest_offset = last_offset
