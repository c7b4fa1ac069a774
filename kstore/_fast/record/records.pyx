# Reads records from batches, lazily: a Record knows the places of its parts and creates Python
# objects on access. It goes batch by batch, so a batch is checked and read while in the CPU's
# cache.

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport (
    BATCH_BAD_COMPRESSION, BATCH_BAD_OFFSET_DELTA, BATCH_BAD_RECORD, BATCH_HEADER_SIZE, BATCH_OK,
    BATCH_TRUNCATED, COMPRESSION_MASK, BatchInfo, check_batch, is_compressed, is_control,
    is_transactional, read_batch_header)
from kstore._fast.record.batch_view cimport BatchView, make_view
from kstore._fast.record.buffer cimport load_int16, read_varint
from kstore._fast.record.compression cimport decompress_memory

from kstore._fast.record.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, InvalidBatchError
from kstore._fast.record.compression import CompressionError
from kstore.types import Header

cdef enum:
    RELEASE_GIL_ABOVE = 65536
    ABORT_MARKER = 0
    CONTROL_KEY_SIZE = 4                    # version, type

cdef int64_t NO_END = 0x7FFFFFFFFFFFFFFF


cdef class BatchCursor:
    def __cinit__(self, buffer, *, bint verify=True, int64_t start_offset=0, end_offset=None,
                  bint control=False, aborted=None, int64_t max_decompressed_bytes=-1):
        cdef Py_buffer* raw
        self.view = memoryview(buffer)
        raw = PyMemoryView_GET_BUFFER(self.view)
        if not self.view.c_contiguous:
            raise ValueError("the buffer is not contiguous: copy it first")
        self.start = <const uint8_t*>raw.buf
        self.end = self.start + raw.len
        if raw.itemsize != 1 or raw.ndim != 1:
            self.view = self.view.cast("B")
        self.verify = verify
        self.start_offset = start_offset
        self.end_offset = NO_END if end_offset is None else end_offset
        self.control = control
        if max_decompressed_bytes < 0:
            max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
        self.max_decompressed_bytes = max_decompressed_bytes
        self.aborting = set()
        self.aborted = None
        if aborted is not None:
            self.aborted = sorted(((first, producer) for producer, first in aborted), reverse=True)

    cdef bint next_batch(self) except -1:
        cdef BatchInfo info
        cdef const uint8_t* at
        cdef int status
        self.remaining = 0
        while True:
            at = self.start + self.position
            status = read_batch_header(at, self.end, &info)
            if status == BATCH_TRUNCATED:
                return False                # a partial batch at the end, as in fetches
            if status == BATCH_OK and info.base_offset >= self.end_offset:
                return False
            if status == BATCH_OK and info.base_offset + info.last_offset_delta < self.start_offset:
                if self.aborted is not None:
                    self._is_hidden(&info)  # transactions may have begun or ended here
                self.position += info.size_bytes
                continue
            if status == BATCH_OK and self.verify:
                if info.size_bytes > RELEASE_GIL_ABOVE:
                    with nogil:
                        status = check_batch(at, self.end, &info)
                else:
                    status = check_batch(at, self.end, &info)
            if status != BATCH_OK:
                raise InvalidBatchError(status, self.position)
            if info.records_count > 0 and not self._is_hidden(&info):
                self._open(&info)
                self.position += info.size_bytes
                return True
            self.position += info.size_bytes

    # Skips control batches unless requested, and batches of the aborted transactions that the
    # caller names.
    cdef bint _is_hidden(self, const BatchInfo* info) except -1:
        cdef int64_t last_offset = info.base_offset + info.last_offset_delta
        cdef const uint8_t* at
        cdef RecordFields fields
        if self.aborted is not None and is_transactional(info):
            while self.aborted and self.aborted[len(self.aborted) - 1][0] <= last_offset:
                self.aborting.add(self.aborted.pop()[1])
            if is_control(info):
                at = self.start + self.position + BATCH_HEADER_SIZE
                if parse_record(at, self.end, &fields) and fields.key_size >= CONTROL_KEY_SIZE:
                    if load_int16(fields.key + 2) == ABORT_MARKER:
                        self.aborting.discard(info.producer_id)
            elif info.producer_id in self.aborting:
                return True
        return is_control(info) and not self.control

    cdef int _open(self, const BatchInfo* info) except -1:
        cdef const uint8_t* at = self.start + self.position
        cdef bytearray unpacked
        self.batch = make_view(self.view, self.position, info)
        self.p = at + BATCH_HEADER_SIZE
        self.stop = at + info.size_bytes
        if is_compressed(info):
            try:
                unpacked = decompress_memory(info.attributes & COMPRESSION_MASK, self.p,
                                             self.stop - self.p,
                                             self.max_decompressed_bytes)
            except CompressionError as error:
                raise InvalidBatchError(BATCH_BAD_COMPRESSION, self.position, str(error)) from error
            self.batch.unpacked = unpacked
            self.p = <const uint8_t*><char*>unpacked
            self.stop = self.p + len(unpacked)
        self.remaining = info.records_count
        return 0

    cdef int next_record(self, RecordFields* out) except -1:
        cdef int64_t offset
        while True:
            while self.remaining > 0:
                if not parse_record(self.p, self.stop, out):
                    raise InvalidBatchError(BATCH_BAD_RECORD, self.batch.position)
                self.p = out.end
                self.remaining -= 1
                if self.remaining == 0 and self.p != self.stop:
                    raise InvalidBatchError(BATCH_BAD_RECORD, self.batch.position)
                if out.offset_delta < 0 or out.offset_delta > self.batch.info.last_offset_delta:
                    raise InvalidBatchError(BATCH_BAD_OFFSET_DELTA, self.batch.position)
                offset = self.batch.info.base_offset + out.offset_delta
                if offset >= self.start_offset and offset < self.end_offset:
                    return 1
            if not self.next_batch():
                return 0


# Kept to 72 bytes: a larger object costs a slow clearing at each creation.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Record:
    """One record. It keeps the buffer (or its batch's decompressed bytes) in memory. ``key``,
    ``value`` and ``headers`` are created when they are accessed.
    """

    cdef readonly BatchView batch
    cdef const uint8_t* _key
    cdef const uint8_t* _value
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef int32_t _key_size
    cdef int32_t _value_size
    cdef int32_t _size_to_end               # from the value's first byte to the record's end

    def __init__(self):
        raise TypeError("records are made by decode()")

    @property
    def key(self):
        """The key, or None."""
        return PyBytes_FromStringAndSize(<char*>self._key,
                                         self._key_size) if self._key_size >= 0 else None

    @property
    def value(self):
        """The value, or None (a tombstone)."""
        if self._value_size < 0:
            return None
        return PyBytes_FromStringAndSize(<char*>self._value, self._value_size)

    @property
    def key_size(self):
        """The size of the key in bytes; -1 if the key is None."""
        return self._key_size

    @property
    def value_size(self):
        """The size of the value in bytes; -1 if the value is None."""
        return self._value_size

    @property
    def headers(self):
        """The headers, in order. Raises InvalidBatchError if they are malformed."""
        cdef const uint8_t* end = self._value + self._size_to_end
        cdef const uint8_t* p = self._value + (self._value_size if self._value_size > 0 else 0)
        cdef int32_t count = 0
        p += read_varint(p, end, &count)
        return tuple(_read_headers(p, end, count, self.batch.position)) if count else ()

    @property
    def timestamp_type(self):
        """0 for CreateTime, 1 for LogAppendTime."""
        return self.batch.timestamp_type

    @property
    def leader_epoch(self):
        """The leader epoch of the record's batch, or -1."""
        return self.batch.info.partition_leader_epoch

    def __eq__(self, other):
        cdef Record right
        if not isinstance(other, Record):
            return NotImplemented
        right = <Record>other
        return (self.offset == right.offset and self.timestamp == right.timestamp
                and self.key == right.key and self.value == right.value
                and self.headers == right.headers)

    __hash__ = None

    def __repr__(self):
        return (f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
                f"value={self.value!r}, headers={list(self.headers)!r})")


cdef list _read_headers(const uint8_t* p, const uint8_t* end, int32_t count, Py_ssize_t position):
    cdef HeaderFields fields
    cdef list found = []
    cdef int32_t i
    for i in range(count):
        p = next_header(p, end, &fields)
        if p == NULL:
            raise InvalidBatchError(BATCH_BAD_RECORD, position, "a header does not fit its record")
        key = PyUnicode_DecodeUTF8(<char*>fields.key, fields.key_size, "surrogateescape")
        value = None
        if fields.value_size >= 0:
            value = PyBytes_FromStringAndSize(<char*>fields.value, fields.value_size)
        found.append(Header(key, value))
    if p != end:
        raise InvalidBatchError(BATCH_BAD_RECORD, position, "bytes follow a record's last header")
    return found


@cython.final
cdef class RecordIterator:
    cdef BatchCursor cursor

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordFields fields
        cdef Record record
        cdef BatchView batch
        if not self.cursor.next_record(&fields):
            raise StopIteration
        batch = self.cursor.batch
        record = Record.__new__(Record)
        record.batch = batch
        record.offset = batch.info.base_offset + fields.offset_delta
        record.timestamp = record_timestamp(&batch.info, &fields)
        record._key = fields.key
        record._key_size = fields.key_size
        record._value = fields.value
        record._value_size = fields.value_size
        record._size_to_end = <int32_t>(fields.end - fields.value)
        return record


cdef class RecordSet:
    """The records in a buffer of batches. Iterating decodes one record after another. Indexing
    decodes all records and keeps them.

    Iteration, ``len`` and indexing raise InvalidBatchError at the first invalid batch. Iteration
    returns the records before it first.
    """

    cdef object buffer
    cdef dict options
    cdef list records
    cdef Py_ssize_t count

    def __init__(self, buffer, **options):
        self.buffer = buffer
        self.options = options
        self.count = -1
        BatchCursor(buffer, **options)      # an invalid option fails here, not at the first record

    def __iter__(self):
        cdef RecordIterator iterator
        if self.records is not None:
            return iter(self.records)
        iterator = RecordIterator.__new__(RecordIterator)
        iterator.cursor = BatchCursor(self.buffer, **self.options)
        return iterator

    def __len__(self):
        cdef RecordFields fields
        cdef BatchCursor cursor
        cdef Py_ssize_t count = 0
        if self.count < 0:
            cursor = BatchCursor(self.buffer, **self.options)
            while cursor.next_record(&fields):
                count += 1
            self.count = count
        return self.count

    def __bool__(self):
        cdef RecordFields fields
        cdef BatchCursor cursor
        if self.count >= 0:
            return self.count > 0
        cursor = BatchCursor(self.buffer, **self.options)
        return cursor.next_record(&fields) == 1

    def __getitem__(self, index):
        if self.records is None:
            self.records = list(self)
            self.count = len(self.records)
        return self.records[index]

    def values(self):
        """All values as a list. Faster than reading them record by record."""
        cdef RecordFields fields
        cdef BatchCursor cursor = BatchCursor(self.buffer, **self.options)
        cdef list found = []
        while cursor.next_record(&fields):
            if fields.value_size < 0:
                found.append(None)
            else:
                found.append(PyBytes_FromStringAndSize(<char*>fields.value, fields.value_size))
        return found

    @property
    def next_offset(self):
        """The offset after the last whole batch: a reader continues there, even if offsets have
        gaps. None if there is no batch.
        """
        cdef BatchInfo info
        cdef Py_buffer* raw
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef int64_t found = -1
        view = memoryview(self.buffer)
        raw = PyMemoryView_GET_BUFFER(view)
        p = <const uint8_t*>raw.buf
        end = p + raw.len
        while read_batch_header(p, end, &info) == BATCH_OK:
            found = info.base_offset + info.last_offset_delta + 1
            p += info.size_bytes
        return None if found < 0 else found

    @property
    def size_bytes(self):
        """The size of the buffer in bytes."""
        return memoryview(self.buffer).nbytes

    def __repr__(self):
        return f"RecordSet({self.size_bytes} bytes, next offset {self.next_offset})"


# A record's headers, from the bytes after its value; the count comes first.
def read_headers(bytes data not None, Py_ssize_t position):
    cdef const uint8_t* p = <const uint8_t*><char*>data
    cdef const uint8_t* end = p + len(data)
    cdef int32_t count = 0
    p += read_varint(p, end, &count)
    return tuple(_read_headers(p, end, count, position)) if count else ()


def decode(buffer, *, verify=True, start_offset=0, end_offset=None, control=False, aborted=None,
           max_decompressed_bytes=-1):
    """The records in ``buffer`` with offsets from ``start_offset`` to before ``end_offset``.

    A partial batch at the end, as in fetch responses, is skipped. With ``verify`` each batch's CRC
    is checked. Control batches are skipped unless ``control`` is True. ``aborted`` lists the
    (producer id, first offset) pairs of a Fetch response; records of these transactions are skipped
    (read_committed). ``max_decompressed_bytes`` limits the size of one batch (below 0: 256 MiB).
    """
    return RecordSet(buffer, verify=verify, start_offset=start_offset, end_offset=end_offset,
                     control=control, aborted=aborted,
                     max_decompressed_bytes=max_decompressed_bytes)
