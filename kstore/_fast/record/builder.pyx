# Builds record batches: record framing, header, compression and CRC. It reads no clock and has only
# the format's limits; the caller decides what is too large.

from collections.abc import Mapping

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE)
from cpython.list cimport PyList_GET_ITEM
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.number cimport PyIndex_Check
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kstore._fast.record.batch cimport (
    BATCH_HEADER_SIZE, CONTROL_MASK, TRANSACTIONAL_MASK, BatchInfo, write_batch_header)
from kstore._fast.record.buffer cimport varint_size, varlong_size, write_varint, write_varlong
from kstore._fast.record.compression cimport compress_memory
from kstore._fast.record.memory cimport MemoryView, view_of

cdef enum:
    FIRST_ROOM = 2048
    RECORD_OVERHEAD = 36  # length, attributes, two deltas, three sizes: their maximum
    LARGEST_BATCH = 0x7FFFFFFF - 256
    LARGEST_VALUE_OVERHEAD = 19  # of a record with only a value

cdef int64_t NO_TIMESTAMP = -1
PASS_HEADERS = "pass a list of (key, value) pairs, or a dict"


cdef inline uint8_t* _write_bytes(uint8_t* p, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    p += write_varint(p, <int32_t>size)
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p


# A varint of a number >= 0; one or two bytes without a loop.
cdef inline uint8_t* put_size(uint8_t* p, int32_t value) noexcept nogil:
    if value < 64:
        p[0] = <uint8_t>(value << 1)
        return p + 1
    if value < 8192:
        p[0] = <uint8_t>(value << 1) | 0x80
        p[1] = <uint8_t>(value >> 6)
        return p + 2
    return p + write_varint(p, value)


# A record with only a value and the batch's timestamp.
cdef inline uint8_t* write_value(
        uint8_t* p, int32_t offset_delta, const char* value, int32_t size) noexcept nogil:
    cdef int delta_size = 1 if offset_delta < 64 else varint_size(offset_delta)
    cdef int size_size = 1 if size < 64 else 2 if size < 8192 else varint_size(size)
    p = put_size(p, 4 + delta_size + size_size + size)
    p[0] = p[1] = 0                         # attributes, timestamp delta
    p = put_size(p + 2, offset_delta)
    p[0] = 1                                # no key: -1
    p = put_size(p + 1, size)
    memcpy(p, value, size)
    p[size] = 0                             # no headers
    return p + size + 1


cdef inline Py_ssize_t _bytes_size(Py_ssize_t size) noexcept nogil:
    return varint_size(<int32_t>size) + (size if size > 0 else 0)


cdef inline uint8_t* _write_record(
        uint8_t* p, int64_t timestamp_delta, int32_t offset_delta, const uint8_t* key,
        Py_ssize_t key_size,
        const uint8_t* value, Py_ssize_t value_size, const uint8_t* headers,
        Py_ssize_t headers_size,
        int32_t header_count) noexcept nogil:
    cdef Py_ssize_t body = (1 + varlong_size(timestamp_delta) + varint_size(offset_delta)
                            + _bytes_size(key_size) + _bytes_size(value_size)
                            + varint_size(header_count) + headers_size)
    p += write_varint(p, <int32_t>body)
    p[0] = 0
    p += 1
    p += write_varlong(p, timestamp_delta)
    p += write_varint(p, offset_delta)
    p = _write_bytes(p, key, key_size)
    p = _write_bytes(p, value, value_size)
    p += write_varint(p, header_count)
    if headers_size:
        memcpy(p, headers, headers_size)
    return p + headers_size


cdef Py_ssize_t build_single(
        uint8_t* into, int64_t base_offset, int32_t leader_epoch, int64_t timestamp,
        const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
        Py_ssize_t value_size) noexcept nogil:
    cdef BatchInfo info
    cdef uint8_t* end = _write_record(into + BATCH_HEADER_SIZE, 0, 0, key, key_size, value,
                                      value_size,
                                      NULL, 0, 0)
    info.base_offset = base_offset
    info.size_bytes = <int32_t>(end - into)
    info.partition_leader_epoch = leader_epoch
    info.attributes = 0
    info.last_offset_delta = 0
    info.base_timestamp = timestamp
    info.max_timestamp = timestamp
    info.producer_id = -1
    info.producer_epoch = -1
    info.base_sequence = -1
    info.records_count = 1
    write_batch_header(into, &info)
    return end - into


cdef class RecordBatchBuilder:
    """One batch under construction: append records, ``build()``, ``reset()``, and so on."""

    def __cinit__(self):
        self.data = <uint8_t*>PyMem_RawMalloc(FIRST_ROOM)
        if self.data == NULL:
            raise MemoryError
        self.room = FIRST_ROOM
        self.size_bytes = BATCH_HEADER_SIZE

    def __init__(self, *, int compression=0, int level=-1, int64_t producer_id=-1,
                 int16_t producer_epoch=-1, int32_t base_sequence=-1, bint transactional=False,
                 bint control=False):
        if not 0 <= compression <= 4:
            raise ValueError(f"compression type is {compression}: pass 0 to 4")
        self.compression = compression
        self.level = level
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.control = control

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __len__(self):
        return self.count

    cdef int _reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t needed = self.size_bytes + more
        cdef Py_ssize_t room = self.room
        cdef uint8_t* moved
        if needed <= room:
            return 0
        if needed > LARGEST_BATCH:
            raise OverflowError(
                f"the batch would have {needed} bytes: it holds at most {LARGEST_BATCH}, split it")
        while room < needed:
            room *= 2
        moved = <uint8_t*>PyMem_RawRealloc(self.data, room)
        if moved == NULL:
            raise MemoryError
        self.data = moved
        self.room = room
        return 0

    # The usual case in one tight loop: a list of bytes that fit into one batch. False: another
    # case.
    cdef bint fill_values(self, list values, int64_t now, int64_t limit) except -1:
        cdef Py_ssize_t count = len(values)
        cdef Py_ssize_t room = BATCH_HEADER_SIZE + count * LARGEST_VALUE_OVERHEAD
        cdef Py_ssize_t i, size
        cdef uint8_t* p
        for i in range(count):
            if not PyBytes_CheckExact(<object>PyList_GET_ITEM(values, i)):
                return False
            room += PyBytes_GET_SIZE(<object>PyList_GET_ITEM(values, i))
        if room > limit or count == 0:
            return False
        self._reserve(room - self.size_bytes)
        p = self.data + self.size_bytes
        for i in range(count):
            size = PyBytes_GET_SIZE(<object>PyList_GET_ITEM(values, i))
            p = write_value(
                p, <int32_t>i, PyBytes_AS_STRING(<object>PyList_GET_ITEM(values, i)), <int32_t>size)
        self.size_bytes = p - self.data
        self.count = <int32_t>count
        self.first_timestamp = self.largest_timestamp = now
        return True

    cdef int append_memory(self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
                           Py_ssize_t value_size, int64_t timestamp, const uint8_t* headers,
                           Py_ssize_t headers_size, int32_t header_count) except -1:
        cdef uint8_t* end
        cdef Py_ssize_t room = (RECORD_OVERHEAD + headers_size + (key_size if key_size > 0 else 0)
                                + (value_size if value_size > 0 else 0))
        if self.sealed:
            raise ValueError("the batch is built: call reset() before the next record")
        if room > self.room - self.size_bytes:
            self._reserve(room)
        if self.count == 0:
            self.first_timestamp = timestamp
            self.largest_timestamp = timestamp
        elif timestamp > self.largest_timestamp:
            self.largest_timestamp = timestamp
        end = _write_record(
            self.data + self.size_bytes,
            <int64_t>(<uint64_t>timestamp - <uint64_t>self.first_timestamp),
            self.count, key, key_size, value, value_size, headers, headers_size, header_count)
        self.size_bytes = end - self.data
        self.count += 1
        return 0

    cdef int append_objects(self, object value, object key, int64_t timestamp,
                            object headers) except -1:
        cdef Py_buffer value_view
        cdef Py_buffer key_view
        cdef const uint8_t* value_data = NULL
        cdef const uint8_t* key_data = NULL
        cdef Py_ssize_t value_size = -1
        cdef Py_ssize_t key_size = -1
        cdef bint value_held = False
        cdef bint key_held = False
        cdef bytes encoded = b""
        cdef int32_t header_count = 0
        if key is None and not headers and PyBytes_CheckExact(value):
            return self.append_memory(NULL, -1, <const uint8_t*>PyBytes_AS_STRING(value),
                                      PyBytes_GET_SIZE(value), timestamp, NULL, 0, 0)
        if headers is not None and headers:
            headers = header_rows(headers)
            header_count = <int32_t>len(headers)
            encoded = encode_headers(headers)
        try:
            if PyBytes_CheckExact(value):
                value_data = <const uint8_t*>PyBytes_AS_STRING(value)
                value_size = PyBytes_GET_SIZE(value)
            elif value is not None:
                _require_buffer(value, "value")
                PyObject_GetBuffer(value, &value_view, PyBUF_SIMPLE)
                value_held = True
                value_data = <const uint8_t*>value_view.buf
                value_size = value_view.len
            if PyBytes_CheckExact(key):
                key_data = <const uint8_t*>PyBytes_AS_STRING(key)
                key_size = PyBytes_GET_SIZE(key)
            elif key is not None:
                _require_buffer(key, "key")
                PyObject_GetBuffer(key, &key_view, PyBUF_SIMPLE)
                key_held = True
                key_data = <const uint8_t*>key_view.buf
                key_size = key_view.len
            self.append_memory(key_data, key_size, value_data, value_size, timestamp,
                               <const uint8_t*>PyBytes_AS_STRING(encoded),
                               PyBytes_GET_SIZE(encoded),
                               header_count)
        finally:
            if value_held:
                PyBuffer_Release(&value_view)
            if key_held:
                PyBuffer_Release(&key_view)
        return 0

    cdef int append_record(self, object record, int64_t default_timestamp) except -1:
        cdef Py_ssize_t parts
        cdef int64_t timestamp = default_timestamp
        cdef object headers = None
        if PyBytes_CheckExact(record):
            return self.append_memory(NULL, -1, <const uint8_t*>PyBytes_AS_STRING(record),
                                      PyBytes_GET_SIZE(record), timestamp, NULL, 0, 0)
        if not isinstance(record, tuple):
            return self.append_objects(record, None, timestamp, None)
        parts = len(<tuple>record)
        if parts == 2:
            value = (<tuple>record)[1]
            key = (<tuple>record)[0]
            if PyBytes_CheckExact(value) and PyBytes_CheckExact(key):
                return self.append_memory(
                    <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                    <const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
                    timestamp, NULL, 0, 0)
        if not 2 <= parts <= 4:
            raise ValueError(f"a record tuple has {parts} parts: "
                             "pass (key, value[, timestamp[, headers]])")
        if parts > 2 and (<tuple>record)[2] is not None:
            timestamp = milliseconds((<tuple>record)[2])
        if parts > 3:
            headers = (<tuple>record)[3]
        return self.append_objects((<tuple>record)[1], (<tuple>record)[0], timestamp, headers)

    cdef int seal(self, int64_t base_offset, int32_t leader_epoch) except -1:
        cdef BatchInfo info
        if self.sealed:
            raise ValueError("the batch is built already: call reset() before the next one")
        if self.count == 0:
            raise ValueError("the batch has no records: append at least one")
        if self.compression:
            self._compress()
        info.base_offset = base_offset
        info.size_bytes = <int32_t>self.size_bytes
        info.partition_leader_epoch = leader_epoch
        info.attributes = <int16_t>(
            self.compression | (TRANSACTIONAL_MASK if self.transactional else 0)
            | (CONTROL_MASK if self.control else 0))
        info.last_offset_delta = self.count - 1
        info.base_timestamp = self.first_timestamp
        info.max_timestamp = self.largest_timestamp
        info.producer_id = self.producer_id
        info.producer_epoch = self.producer_epoch
        info.base_sequence = self.base_sequence
        info.records_count = self.count
        write_batch_header(self.data, &info)
        self.sealed = True
        return 0

    def _compress(self):
        cdef object packed = compress_memory(
            self.compression, self.level, self.data + BATCH_HEADER_SIZE,
            self.size_bytes - BATCH_HEADER_SIZE)
        cdef MemoryView view = view_of(packed)
        cdef Py_ssize_t size = view.size
        self.size_bytes = BATCH_HEADER_SIZE
        self._reserve(size)
        memcpy(self.data + BATCH_HEADER_SIZE, view.data, size)
        self.size_bytes += size

    cpdef int reset(self) except -1:
        """Start the next batch with the same settings, in the same memory."""
        self.size_bytes = BATCH_HEADER_SIZE
        self.count = 0
        self.sealed = False
        return 0

    def append(self, value, key=None, int64_t timestamp=-1, headers=()):
        """Add a record (timestamp in ms, -1 for none); returns its offset delta.

        Raises TypeError for parts that are not bytes-like, OverflowError above the format's 2 GiB.
        """
        self.append_objects(value, key, timestamp, headers)
        return self.count - 1

    def extend(self, records, int64_t timestamp=-1):
        """Add records; ``timestamp`` is for those without one. Returns the count so far."""
        for record in records:
            self.append_record(record, timestamp)
        return self.count

    def build(self, int64_t base_offset=0, int32_t leader_epoch=-1):
        """The batch, compressed and with its CRC. Raises ValueError if it is empty or already
        built.
        """
        self.seal(base_offset, leader_epoch)
        return PyBytes_FromStringAndSize(<char*>self.data, self.size_bytes)


# A user's timestamp. A float is mostly time.time(), which is in seconds: cut to an integer, it
# would be a time in 1970, and retention would delete the record.
cdef int64_t milliseconds(object timestamp) except? -1:
    if not PyIndex_Check(timestamp):
        raise TypeError(f"a record's timestamp is {type(timestamp).__name__}: "
                        "pass an int, in milliseconds since 1970")
    return timestamp


cdef int _require_buffer(object part, str what) except -1:
    if not PyObject_CheckBuffer(part):
        raise TypeError(f"a record's {what} is {type(part).__name__}: pass bytes-like or None "
                        "(encode text first)")
    return 0


# A header's key is text; bytes that are not UTF-8 become surrogate escapes, so no byte is lost.
cdef bytes _header_key(object key):
    if isinstance(key, str):
        return (<str>key).encode("utf-8", "surrogateescape")
    if isinstance(key, bytes):
        return key
    raise TypeError(f"a header's key is {type(key).__name__}: pass str")


# The user's headers, as a sized iterable of pairs.
cpdef object header_rows(object headers):
    if type(headers) is list or type(headers) is tuple:
        return headers
    if isinstance(headers, Mapping):
        return list(headers.items())
    if isinstance(headers, (str, bytes, bytearray, memoryview)) or not hasattr(headers, "__len__"):
        raise TypeError(f"headers is the {type(headers).__name__} {headers!r}: {PASS_HEADERS}")
    return list(headers)


cpdef bytes encode_headers(object headers):
    cdef list parts = []
    cdef uint8_t[8] size
    cdef bytes key
    for row in headers:
        if not isinstance(row, (tuple, list)) or len(row) != 2:
            raise TypeError(f"headers has {row!r} in it: {PASS_HEADERS}")
        name, value = row
        key = _header_key(name)
        parts.append((<char*>size)[:write_varint(size, <int32_t>len(key))])
        parts.append(key)
        if value is None:
            parts.append((<char*>size)[:write_varint(size, -1)])
            continue
        if not isinstance(value, bytes):
            _require_buffer(value, "header value")
            value = bytes(value)
        parts.append((<char*>size)[:write_varint(size, <int32_t>len(value))])
        parts.append(value)
    return b"".join(parts)


def build_batch(records, *, int64_t timestamp=-1, int compression=0, int level=-1,
                int64_t base_offset=0,
                int32_t leader_epoch=-1, int64_t producer_id=-1, int16_t producer_epoch=-1,
                int32_t base_sequence=-1, bint transactional=False, bint control=False):
    """One batch from ``records`` in one call."""
    cdef RecordBatchBuilder builder = RecordBatchBuilder(
        compression=compression, level=level, producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence, transactional=transactional, control=control)
    for record in records:
        builder.append_record(record, timestamp)
    return builder.build(base_offset, leader_epoch)


def build_single_batch(value, key=None, *, int64_t timestamp=-1, int64_t base_offset=0,
                       int32_t leader_epoch=-1):
    cdef MemoryView value_view
    cdef MemoryView key_view
    cdef const uint8_t* value_data = NULL
    cdef const uint8_t* key_data = NULL
    cdef Py_ssize_t value_size = -1
    cdef Py_ssize_t key_size = -1
    cdef Py_ssize_t size
    cdef uint8_t* into
    if value is not None:
        value_view = view_of(value)
        value_size = value_view.size
        value_data = value_view.data
    if key is not None:
        key_view = view_of(key)
        key_size = key_view.size
        key_data = key_view.data
    into = <uint8_t*>PyMem_RawMalloc(single_batch_room(key_size, value_size))
    if into == NULL:
        raise MemoryError
    try:
        size = build_single(into, base_offset, leader_epoch, timestamp, key_data, key_size,
                            value_data,
                            value_size)
        return PyBytes_FromStringAndSize(<char*>into, size)
    finally:
        PyMem_RawFree(into)
