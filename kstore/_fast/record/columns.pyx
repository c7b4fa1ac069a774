# Records as columns in Arrow's memory layout, without a Python object per record. It has only the
# layout: kstore/record/arrow.py creates pyarrow objects.

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kstore._fast.record.batch cimport BATCH_BAD_RECORD, BATCH_OK, BatchInfo, read_batch_header
from kstore._fast.record.records cimport (
    BatchCursor, HeaderFields, RecordFields, next_header, record_timestamp)

from kstore._fast.record.batch import InvalidBatchError

cdef enum:
    FIRST_ROOM = 4096
    FIRST_ROWS = 256
    SMALLEST_RECORD = 7
    TIMESTAMP_TYPE_BIT = 0x08

cdef int64_t MOST_MILLISECONDS = 0x7FFFFFFFFFFFFFFF // 1000
cdef Py_ssize_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF

OFFSET = WANT_OFFSET
TIMESTAMP = WANT_TIMESTAMP
KEY = WANT_KEY
VALUE = WANT_VALUE
HEADERS = WANT_HEADERS
TIMESTAMP_TYPE = WANT_TIMESTAMP_TYPE
MICROSECONDS = WANT_MICROSECONDS


@cython.final
cdef class ColumnMemory:
    def __cinit__(self):
        self.data = <uint8_t*>PyMem_RawMalloc(FIRST_ROOM)
        if self.data == NULL:
            raise MemoryError
        self.room = FIRST_ROOM

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = self.room
        cdef uint8_t* moved
        while room < self.size + more:
            room *= 2
        if room == self.room:
            return 0
        moved = <uint8_t*>PyMem_RawRealloc(self.data, room)
        if moved == NULL:
            raise MemoryError
        self.data = moved
        self.room = room
        return 0

    cdef int add(self, const void* data, Py_ssize_t size) except -1:
        if size > self.room - self.size:
            self.grow(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef int add_int32(self, int32_t value) except -1:
        return self.add(&value, 4)


@cython.final
cdef class BinaryColumn:
    def __cinit__(self):
        self.offsets = ColumnMemory()
        self.data = ColumnMemory()
        self.offsets.add_int32(0)

    cdef int add(self, const uint8_t* data, Py_ssize_t size) except -1:
        if self.offsets.room - self.offsets.size < 4:
            self.offsets.grow(4)
        return self.put(data, size)

    # As add, if the offsets have room.
    cdef int put(self, const uint8_t* data, Py_ssize_t size) except -1:
        if size > 0:
            if self.data.size + size > 0x7FFFFFFF:
                raise OverflowError(
                    "a column would hold more than 2 GiB: decode fewer batches at once")
            self.data.add(data, size)
        self.count += 1
        (<int32_t*>self.offsets.data)[self.count] = <int32_t>self.data.size
        self.offsets.size += 4
        if size < 0 or self.nulls:
            self._mark(self.count - 1, size >= 0)
        return 0

    cdef int _mark(self, Py_ssize_t row, bint valid) except -1:
        cdef Py_ssize_t needed = (row >> 3) + 1
        if self.validity is None:
            self.validity = ColumnMemory()
        if needed > self.validity.room:
            self.validity.grow(needed - self.validity.size)
        if self.nulls == 0:                     # all before were valid
            memset(self.validity.data, 0xFF, needed)
        elif needed > self.validity.size:
            self.validity.data[needed - 1] = 0xFF
        self.validity.size = needed
        if not valid:
            self.validity.data[row >> 3] &= ~(<uint8_t>1 << (row & 7))
            self.nulls += 1
        return 0


@cython.final
cdef class Columns:
    def __cinit__(self, int wanted=WANT_RECORD):
        self.wanted = wanted
        self.offset = ColumnMemory()
        self.timestamp = ColumnMemory()
        self.timestamp_type = ColumnMemory()
        self.key = BinaryColumn()
        self.value = BinaryColumn()
        self.header_offsets = ColumnMemory()
        self.header_key = BinaryColumn()
        self.header_value = BinaryColumn()
        self.header_offsets.add_int32(0)

    def __len__(self):
        return self.count

    cdef int _add_headers(self, const RecordFields* fields, Py_ssize_t position) except -1:
        cdef const uint8_t* p = fields.headers
        cdef HeaderFields header
        cdef int32_t i
        for i in range(fields.header_count):
            p = next_header(p, fields.end, &header)
            if p == NULL:
                break
            self.header_key.add(header.key, header.key_size)
            self.header_value.add(header.value, header.value_size)
        if p != fields.end:
            raise InvalidBatchError(BATCH_BAD_RECORD, position,
                                    "the headers do not fit their record")
        return 0

    # Room for the counts in the headers, so that columns seldom move; never more than the bytes can
    # hold.
    cdef int reserve(self, BatchCursor cursor) except -1:
        cdef const uint8_t* first = cursor.start + cursor.position
        cdef const uint8_t* p = first
        cdef BatchInfo info
        cdef Py_ssize_t count = cursor.remaining
        while read_batch_header(p, cursor.end, &info) == BATCH_OK:
            p += info.size_bytes
            if info.records_count > 0:
                count += min(info.records_count, info.size_bytes // SMALLEST_RECORD)
        self._make_room(count)
        if self.wanted & WANT_VALUE:
            self.value.data.grow(p - first)
        return 0

    # Room for so many more records in every column of fixed-size entries.
    cdef int _make_room(self, Py_ssize_t count) except -1:
        self.capacity = self.count + count
        if self.wanted & WANT_OFFSET:
            self.offset.grow(8 * count)
        if self.wanted & WANT_TIMESTAMP:
            self.timestamp.grow(8 * count)
        if self.wanted & WANT_TIMESTAMP_TYPE:
            self.timestamp_type.grow(4 * count)
        if self.wanted & WANT_KEY:
            self.key.offsets.grow(4 * count)
        if self.wanted & WANT_VALUE:
            self.value.offsets.grow(4 * count)
        if self.wanted & WANT_HEADERS:
            self.header_offsets.grow(4 * count)
        return 0

    cdef int _add_times(self, BatchCursor cursor, const RecordFields* fields,
                        Py_ssize_t row) except -1:
        cdef int64_t timestamp = record_timestamp(&cursor.batch.info, fields)
        if self.wanted & WANT_MICROSECONDS:
            if timestamp > MOST_MILLISECONDS or timestamp < -MOST_MILLISECONDS:
                raise OverflowError(
                    f"the timestamp {timestamp} of offset "
                    f"{cursor.batch.info.base_offset + fields.offset_delta} is too large in "
                    "microseconds: read without the column timestamp")
            timestamp *= 1000
        (<int64_t*>self.timestamp.data)[row] = timestamp
        self.timestamp.size += 8
        return 0

    # Whether no column has a part of an abandoned record.
    cdef bint is_even(self):
        cdef Py_ssize_t keys = self.count if self.wanted & WANT_KEY else 0
        cdef Py_ssize_t values = self.count if self.wanted & WANT_VALUE else 0
        return self.key.count == keys and self.value.count == values

    cdef int fill(self, BatchCursor cursor, Py_ssize_t max_records,
                  Py_ssize_t max_bytes=NO_LIMIT) except -1:
        cdef RecordFields fields
        cdef Py_ssize_t row = self.count
        cdef int64_t timestamp
        cdef int wanted = self.wanted
        while (row < max_records and self.key.data.size + self.value.data.size < max_bytes
               and cursor.next_record(&fields)):
            if self.timed:
                timestamp = record_timestamp(&cursor.batch.info, &fields)
                if timestamp < self.first_ms or timestamp >= self.end_ms:
                    continue
            if row == self.capacity:
                self._make_room(row + FIRST_ROWS)
            if wanted & WANT_OFFSET:
                (<int64_t*>self.offset.data)[row] = (
                    cursor.batch.info.base_offset + fields.offset_delta)
                self.offset.size += 8
            if wanted & WANT_TIMESTAMP:
                self._add_times(cursor, &fields, row)
            if wanted & WANT_TIMESTAMP_TYPE:
                (<int32_t*>self.timestamp_type.data)[row] = (
                    (cursor.batch.info.attributes & TIMESTAMP_TYPE_BIT) != 0)
                self.timestamp_type.size += 4
            if wanted & WANT_KEY:
                self.key.put(fields.key, fields.key_size)
            if wanted & WANT_VALUE:
                self.value.put(fields.value, fields.value_size)
            row += 1
            if wanted & WANT_HEADERS:
                if fields.header_count:
                    self._add_headers(&fields, cursor.batch.position)
                (<int32_t*>self.header_offsets.data)[row] = <int32_t>self.header_key.count
                self.header_offsets.size += 4
            self.count = row
        return 0


def decode_columns(buffer, *, max_records=None, **options):
    cdef Columns columns = Columns()
    cdef Py_ssize_t limit = 0x7FFFFFFF if max_records is None else max_records
    cdef BatchCursor cursor = BatchCursor(buffer, **options)
    if max_records is None:
        columns.reserve(cursor)
    columns.fill(cursor, limit)
    return columns


@cython.final
cdef class ColumnReader:
    def __cinit__(self, buffer, int wanted, ColumnReader after=None, times=None, **options):
        self.cursor = BatchCursor(buffer, **options)
        self.wanted = wanted
        self.times = times
        if after is not None:
            self.cursor.aborted = after.cursor.aborted
            self.cursor.aborting = after.cursor.aborting

    @property
    def position(self):
        return self.cursor.position

    def read(self, Py_ssize_t max_records, Py_ssize_t max_bytes):
        cdef Columns columns = Columns(self.wanted)
        if self.times is not None:
            columns.timed = True
            columns.first_ms, columns.end_ms = self.times
        cdef Py_ssize_t left = self.cursor.end - self.cursor.start - self.cursor.position
        if self.failure is not None:
            raise self.failure
        if left <= max_bytes:
            columns.reserve(self.cursor)
        try:
            columns.fill(self.cursor, max_records, max_bytes)
        except InvalidBatchError as error:
            if columns.count == 0 or not columns.is_even():
                raise
            self.failure = error
        return columns
