# Columns in Arrow's memory layout: what the consumer's poll_arrow fills.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.records cimport BatchCursor, RecordFields

# Which columns are filled.
cdef enum:
    WANT_OFFSET = 1
    WANT_TIMESTAMP = 2
    WANT_KEY = 4
    WANT_VALUE = 8
    WANT_HEADERS = 16
    WANT_TIMESTAMP_TYPE = 32                # int32: 0 CreateTime, 1 LogAppendTime
    WANT_MICROSECONDS = 64                  # timestamps in Spark's unit
    WANT_RECORD = 31                        # the record's own columns, in Kafka's units

# Growing memory, which Python reads through the buffer protocol when it is complete.
@cython.final
cdef class ColumnMemory:
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    cdef int grow(self, Py_ssize_t more) except -1
    cdef int add(self, const void* data, Py_ssize_t size) except -1
    cdef int add_int32(self, int32_t value) except -1

# Variable-size values: offsets (int32, count + 1), data, and a validity bitmap once there is a
# null.
@cython.final
cdef class BinaryColumn:
    cdef readonly ColumnMemory offsets
    cdef readonly ColumnMemory data
    cdef readonly ColumnMemory validity         # None while there is no null
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nulls

    cdef int add(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef int put(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef int _mark(self, Py_ssize_t row, bint valid) except -1

@cython.final
cdef class Columns:
    cdef readonly ColumnMemory offset
    cdef readonly ColumnMemory timestamp
    cdef readonly ColumnMemory timestamp_type
    cdef readonly BinaryColumn key
    cdef readonly BinaryColumn value
    cdef readonly ColumnMemory header_offsets  # int32, count + 1: starts of the records' headers
    cdef readonly BinaryColumn header_key
    cdef readonly BinaryColumn header_value
    cdef readonly Py_ssize_t count
    cdef int wanted
    cdef Py_ssize_t capacity            # records that the fixed-size columns have room for
    cdef bint timed                     # only timestamps first_ms <= t < end_ms
    cdef int64_t first_ms
    cdef int64_t end_ms

    cdef int _add_headers(self, const RecordFields* fields, Py_ssize_t position) except -1
    # Room for everything that the cursor's buffer may contain.
    cdef int reserve(self, BatchCursor cursor) except -1
    cdef bint is_even(self)
    cdef int _make_room(self, Py_ssize_t count) except -1
    # Records of the cursor until there are max_records rows, or max_bytes of keys and values.
    cdef int fill(self, BatchCursor cursor, Py_ssize_t max_records,
                  Py_ssize_t max_bytes=*) except -1
    cdef int _add_times(self, BatchCursor cursor, const RecordFields* fields,
                        Py_ssize_t row) except -1

# A cursor's records as columns, in pieces.
@cython.final
cdef class ColumnReader:
    cdef BatchCursor cursor
    cdef int wanted
    cdef object times                       # (first, end) in ms, or None
    cdef object failure                     # the error that ended it, raised after the rest
