# The second pass of log compaction: rewrites batches without the records that have newer ones of
# the same key (key_index.pyx is the first pass). It handles whole buffers without the GIL. Only
# transactional, control and compressed batches, and the last batches of active producers, need a
# decision or a codec. It opens no file. The caller (kstore/log/retention/cleaner.py) knows which
# transactions were aborted or committed.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kstore._fast.log.offset_map cimport OffsetMap
from kstore._fast.log.record_at cimport RecordAt, may_go, read_record, record_attributes
from kstore._fast.record.batch cimport (
    BATCH_BAD_RECORD, BATCH_HEADER_SIZE, BATCH_OK, BATCH_TRUNCATED, BatchInfo, COMPRESSION_MASK,
    CONTROL_MASK, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK, check_batch,
    decompressed_records, is_compressed, is_control, is_log_append_time, is_transactional,
    write_batch_header)
from kstore._fast.record.buffer cimport varlong_size, write_varint, write_varlong
from kstore._fast.record.compression cimport compress_memory
from kstore._fast.record.memory cimport MemoryView, view_of

from kstore._fast.record.batch import InvalidBatchError

cdef enum:
    NO_MEMORY = -1

cdef enum:                              # what happens to a batch without remaining records
    DELETE_EMPTY = 0
    RETAIN_EMPTY = 1


cdef inline bint _is_special(const BatchInfo* info) noexcept nogil:
    return info.producer_id >= 0 or info.records_count == 0 or (
        info.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK | COMPRESSION_MASK)) != 0


cdef class BatchCleaner:
    cdef readonly OffsetMap offsets
    cdef readonly int64_t now_ms
    cdef readonly int64_t delete_retention_ms
    cdef readonly int64_t upper_bound_offset
    cdef dict last_records
    cdef object decide
    cdef uint8_t* out
    cdef Py_ssize_t out_size
    cdef Py_ssize_t out_room
    cdef uint8_t* kept                  # one byte per record of the current batch
    cdef Py_ssize_t kept_room
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t batches_read
    cdef readonly int64_t batches_kept
    cdef readonly int64_t keyless

    def __cinit__(self, OffsetMap offsets not None, *, int64_t now_ms, int64_t delete_retention_ms,
                  int64_t upper_bound_offset, dict last_records not None, decide):
        self.offsets = offsets
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.upper_bound_offset = upper_bound_offset
        self.last_records = last_records
        self.decide = decide

    def __dealloc__(self):
        free(self.out)
        free(self.kept)

    cdef int _make_room(self, Py_ssize_t more) noexcept nogil:
        cdef Py_ssize_t room = self.out_size + more
        cdef uint8_t* grown
        if room <= self.out_room:
            return 0
        room += room // 2 + 4096
        grown = <uint8_t*>realloc(self.out, room)
        if grown == NULL:
            return NO_MEMORY
        self.out = grown
        self.out_room = room
        return 0

    cdef int _make_kept_room(self, Py_ssize_t count) noexcept nogil:
        cdef uint8_t* grown
        if count <= self.kept_room:
            return 0
        grown = <uint8_t*>realloc(self.kept, count + 1024)
        if grown == NULL:
            return NO_MEMORY
        self.kept = grown
        self.kept_room = count + 1024
        return 0

    # Kafka's rule: a record stays if it is the last of its key below the map's end. A tombstone
    # stays only until its horizon.
    cdef bint _keeps(self, const BatchInfo* info, const RecordAt* record) noexcept nogil:
        cdef int64_t offset = info.base_offset + record.offset_delta
        if offset > self.offsets.latest_offset:
            return True
        if record.key_size < 0:
            self.keyless += 1
            return False
        if offset < self.offsets.find(record.key, record.key_size):
            return False
        if record.value_size >= 0 or not (info.attributes & DELETE_HORIZON_MASK):
            return True
        return self.now_ms < info.base_timestamp

    # Marks the records that stay in self.kept. Returns their number, -1 for invalid records, or -2
    # without memory.
    cdef Py_ssize_t _mark(self, const uint8_t* p, const uint8_t* end, const BatchInfo* info,
                          bint* tombstones) noexcept nogil:
        cdef RecordAt record
        cdef Py_ssize_t count = 0
        cdef int32_t i
        tombstones[0] = False
        # A record has at least 7 bytes. Do not allocate for a count that is too large.
        if info.records_count < 0 or info.records_count > (end - p) // 7:
            return -1
        if self._make_kept_room(info.records_count) != 0:
            return -2
        for i in range(info.records_count):
            p = read_record(p, end, &record)
            if p == NULL:
                return -1
            self.kept[i] = is_control(info) or self._keeps(info, &record)
            if self.kept[i]:
                count += 1
                if record.value_size < 0:
                    tombstones[0] = True
        self.records_read += info.records_count
        return count if p == end else -1

    cdef int _copy_batch(self, const uint8_t* p, const BatchInfo* info) noexcept nogil:
        if self._make_room(info.size_bytes) != 0:
            return NO_MEMORY
        memcpy(self.out + self.out_size, p, info.size_bytes)
        self.out_size += info.size_bytes
        self.batches_kept += 1
        self.records_kept += info.records_count
        return 0

    # A header without records. It keeps the producer's last sequence, or the end of the cleaned
    # part.
    cdef int _write_empty(self, const BatchInfo* info) noexcept nogil:
        cdef BatchInfo header = info[0]
        if self._make_room(BATCH_HEADER_SIZE) != 0:
            return NO_MEMORY
        header.attributes &= TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
        header.base_timestamp = -1
        header.records_count = 0
        header.size_bytes = BATCH_HEADER_SIZE
        write_batch_header(self.out + self.out_size, &header)
        self.out_size += BATCH_HEADER_SIZE
        self.batches_kept += 1
        return 0

    # Writes the marked records to self.out, after space for a header. `header` gets the counts and
    # times.
    cdef int _write_records(self, const uint8_t* p, const uint8_t* end, const BatchInfo* info,
                            int64_t horizon_ms, BatchInfo* header) noexcept nogil:
        cdef uint8_t* into
        cdef RecordAt record
        cdef int64_t timestamp, delta
        cdef int32_t length
        cdef int32_t i
        # A record's new timestamp delta and length take at most 10 + 5 bytes more than the old
        # ones.
        cdef Py_ssize_t more = 15 * <Py_ssize_t>info.records_count
        if self._make_room(BATCH_HEADER_SIZE + (end - p) + more) != 0:
            return NO_MEMORY
        into = self.out + self.out_size + BATCH_HEADER_SIZE
        header[0] = info[0]
        header.records_count = 0
        for i in range(info.records_count):
            p = read_record(p, end, &record)
            if p == NULL:
                break                       # does not happen: _mark has read them all
            if not self.kept[i]:
                continue
            timestamp = info.max_timestamp if is_log_append_time(info) else (
                info.base_timestamp + record.timestamp_delta)
            if header.records_count == 0:
                header.base_timestamp = horizon_ms if horizon_ms >= 0 else timestamp
                header.max_timestamp = timestamp
            elif timestamp > header.max_timestamp:
                header.max_timestamp = timestamp
            delta = timestamp - header.base_timestamp
            length = <int32_t>(1 + varlong_size(delta) + (record.stop - record.rest))
            into += write_varint(into, length)
            into[0] = record_attributes(&record)
            into += 1
            into += write_varlong(into, delta)
            memcpy(into, record.rest, record.stop - record.rest)
            into += record.stop - record.rest
            header.records_count += 1
        header.size_bytes = <int32_t>(into - self.out - self.out_size)
        if horizon_ms >= 0:
            header.attributes |= DELETE_HORIZON_MASK
        return 0

    cdef int _finish(self, const BatchInfo* header) noexcept nogil:
        write_batch_header(self.out + self.out_size, header)
        self.out_size += header.size_bytes
        self.batches_kept += 1
        self.records_kept += header.records_count
        return 0

    cdef int _compress(self, BatchInfo* header) except -1:
        packed = compress_memory(header.attributes & COMPRESSION_MASK, -1,
                                 self.out + self.out_size + BATCH_HEADER_SIZE,
                                 header.size_bytes - BATCH_HEADER_SIZE)
        cdef MemoryView view = view_of(packed)
        if self._make_room(BATCH_HEADER_SIZE + view.size) != 0:
            raise MemoryError()
        memcpy(self.out + self.out_size + BATCH_HEADER_SIZE, view.data, view.size)
        header.size_bytes = <int32_t>(BATCH_HEADER_SIZE + view.size)
        return 0

    # 0, NO_MEMORY, or a BatchStatus.
    cdef int _clean_plain(self, const uint8_t* p, const BatchInfo* info, int retain) noexcept nogil:
        cdef bint tombstones
        cdef BatchInfo header
        cdef int64_t horizon
        cdef Py_ssize_t kept = self._mark(
            p + BATCH_HEADER_SIZE, p + info.size_bytes, info, &tombstones)
        if kept < 0:
            return BATCH_BAD_RECORD if kept == -1 else NO_MEMORY
        if kept == 0:
            return self._write_empty(info) if retain == RETAIN_EMPTY else 0
        horizon = self._new_horizon(info, tombstones)
        if kept == info.records_count and horizon < 0:
            return self._copy_batch(p, info)
        if horizon < 0 and (info.attributes & DELETE_HORIZON_MASK):
            horizon = info.base_timestamp
        if self._write_records(p + BATCH_HEADER_SIZE, p + info.size_bytes, info, horizon,
                               &header) != 0:
            return NO_MEMORY
        return self._finish(&header)

    # The time at which the batch's tombstones or marker may be removed, if it must be set now; else
    # -1.
    cdef inline int64_t _new_horizon(self, const BatchInfo* info, bint wanted) noexcept nogil:
        if wanted and not (info.attributes & DELETE_HORIZON_MASK):
            return self.now_ms + self.delete_retention_ms
        return -1

    cdef int _clean_compressed(self, const uint8_t* p, const BatchInfo* info, Py_ssize_t position,
                               int retain) except -1:
        cdef bytearray records = decompressed_records(p, info, position)
        cdef const uint8_t* start = <const uint8_t*><char*>records
        cdef const uint8_t* end = start + len(records)
        cdef bint tombstones
        cdef BatchInfo header
        cdef int64_t horizon
        cdef Py_ssize_t kept
        cdef int status = 0
        with nogil:
            kept = self._mark(start, end, info, &tombstones)
        if kept < 0:
            if kept == -2:
                raise MemoryError()
            return BATCH_BAD_RECORD
        if kept == 0:
            status = self._write_empty(info) if retain == RETAIN_EMPTY else 0
        else:
            horizon = self._new_horizon(info, tombstones)
            if kept == info.records_count and horizon < 0:
                status = self._copy_batch(p, info)
            else:
                if horizon < 0 and (info.attributes & DELETE_HORIZON_MASK):
                    horizon = info.base_timestamp
                with nogil:
                    status = self._write_records(start, end, info, horizon, &header)
                if status == 0:
                    self._compress(&header)
                    self._finish(&header)
        if status != 0:
            raise MemoryError()
        return BATCH_OK

    cdef int _retention(self, const BatchInfo* info) except -1:
        cdef int64_t last_offset = info.base_offset + info.last_offset_delta
        if info.producer_id >= 0:
            last = self.last_records.get(info.producer_id)
            if last is not None:
                data_offset, epoch = last
                if data_offset == last_offset if data_offset is not None else (
                        is_control(info) and epoch == info.producer_epoch):
                    return RETAIN_EMPTY
        return self._is_last(info)

    cdef inline int _is_last(self, const BatchInfo* info) noexcept nogil:
        cdef int64_t next_offset = info.base_offset + info.last_offset_delta + 1
        return RETAIN_EMPTY if next_offset == self.upper_bound_offset else DELETE_EMPTY

    # A marker stays until its transaction has no records left, and then until its horizon.
    cdef int _clean_control(self, const uint8_t* p, const BatchInfo* info, bint done,
                            int retain) except -1:
        cdef BatchInfo header
        cdef bint tombstones
        cdef int status
        cdef bint discard = (done and (info.attributes & DELETE_HORIZON_MASK)
                             and info.base_timestamp <= self.now_ms)
        self.records_read += info.records_count
        if discard or info.records_count == 0:
            status = self._write_empty(info) if retain == RETAIN_EMPTY else 0
        elif not done or (info.attributes & DELETE_HORIZON_MASK):
            status = self._copy_batch(p, info)
        else:
            if self._mark(p + BATCH_HEADER_SIZE, p + info.size_bytes, info, &tombstones) < 0:
                return BATCH_BAD_RECORD
            status = self._write_records(p + BATCH_HEADER_SIZE, p + info.size_bytes, info,
                                         self.now_ms + self.delete_retention_ms, &header)
            if status == 0:
                self._finish(&header)
        if status != 0:
            raise MemoryError()
        return BATCH_OK

    # A batch that needs a decision of the caller, a codec, or a check of the active producers.
    cdef int _clean_special(self, const uint8_t* p, const BatchInfo* info,
                            Py_ssize_t position) except -1:
        cdef int retain = self._retention(info)
        cdef bint discard = False
        cdef int status
        if is_transactional(info) or is_control(info):
            discard = may_go(self.decide, p, info)
        if is_control(info):
            return self._clean_control(p, info, discard, retain)
        if discard or info.records_count == 0:
            self.records_read += info.records_count
            if retain == RETAIN_EMPTY and self._write_empty(info) != 0:
                raise MemoryError()
            return BATCH_OK
        if is_compressed(info):
            return self._clean_compressed(p, info, position, retain)
        with nogil:
            status = self._clean_plain(p, info, retain)
        if status == NO_MEMORY:
            raise MemoryError()
        return status

    def clean(self, data):
        cdef MemoryView given = view_of(data)
        cdef Py_ssize_t size = given.size
        cdef const uint8_t* start = given.data
        cdef Py_ssize_t position = 0
        cdef BatchInfo info
        cdef int status = BATCH_OK
        self.out_size = 0
        while position < size:
            with nogil:
                while position < size:
                    status = check_batch(start + position, start + size, &info)
                    if status != BATCH_OK or _is_special(&info):
                        break
                    status = self._clean_plain(start + position, &info, self._is_last(&info))
                    if status != BATCH_OK:
                        break
                    self.batches_read += 1
                    position += info.size_bytes
            if position >= size or status == BATCH_TRUNCATED:
                break
            if status == BATCH_OK:
                status = self._clean_special(start + position, &info, position)
            if status == NO_MEMORY:
                raise MemoryError()
            if status != BATCH_OK:
                raise InvalidBatchError(status, position)
            self.batches_read += 1
            position += info.size_bytes
        return position, self.out[:self.out_size] if self.out_size else b""
