# One partition's records of a Fetch answer, on their way to the user. They are decoded lazily, in
# one loop per poll, or go to columns. It updates the position and fetches nothing.

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_Append
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport BATCH_OK, BATCH_TRUNCATED, BatchInfo, read_batch_header
from kstore._fast.record.batch_view cimport BatchView
from kstore._fast.record.columns cimport Columns
from kstore._fast.record.records cimport BatchCursor, RecordFields, record_timestamp

from kstore._fast.record.batch import InvalidBatchError
from kstore._fast.record.records import decode, read_headers


# What the records of one batch share.
@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class RecordSource:
    cdef BatchView batch
    cdef str topic
    cdef int32_t partition


# 72 bytes, as Record: a larger object is cleared slowly when it is created.
@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class ConsumerRecord:
    """A record with its topic, partition and offset. It keeps the buffer of its fetch in memory.
    `key`, `value` and `headers` are created each time they are accessed.
    """

    cdef RecordSource source
    cdef const uint8_t* _key
    cdef const uint8_t* _value
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef int32_t _key_size
    cdef int32_t _value_size
    cdef int32_t _size_to_end               # from the value's first byte to the record's end

    def __init__(self):
        raise TypeError("records are made by a consumer's poll()")

    @property
    def topic(self):
        """The topic's name."""
        return self.source.topic

    @property
    def partition(self):
        """The partition's number."""
        return self.source.partition

    @property
    def key(self):
        """The key, or None."""
        if self._key_size < 0:
            return None
        return PyBytes_FromStringAndSize(<char*>self._key, self._key_size)

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
        cdef const uint8_t* p = self._value + (self._value_size if self._value_size > 0 else 0)
        if p + 1 == self._value + self._size_to_end:
            return ()                       # only the count is left, and it is 0
        return read_headers(
            PyBytes_FromStringAndSize(<char*>p, self._value + self._size_to_end - p),
            self.source.batch.position)

    @property
    def timestamp_type(self):
        """0 for CreateTime, 1 for LogAppendTime."""
        return self.source.batch.timestamp_type

    @property
    def leader_epoch(self):
        """The leader epoch in which the record was written; -1 if unknown."""
        return self.source.batch.info.partition_leader_epoch

    cdef tuple _parts(self):
        return (self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type,
                self.key, self.value, self.headers, self.leader_epoch)

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._parts() == (<ConsumerRecord>other)._parts()

    __hash__ = None

    def __repr__(self):
        return (f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, "
                f"offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
                f"value={self.value!r}, headers={list(self.headers)!r})")


@cython.final
cdef class FetchedRecords:
    cdef readonly object tp
    cdef readonly object owner
    cdef readonly int64_t version
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int64_t end_offset
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t partition_epoch
    cdef readonly bint is_drained
    cdef object _buffer
    cdef object _aborted
    cdef bint _verify
    cdef str _topic
    cdef int32_t _partition
    cdef BatchCursor _cursor
    cdef RecordSource _source
    cdef object _failure
    cdef readonly int32_t last_epoch
    cdef readonly list epoch_starts
    cdef readonly bint is_cut_off

    def __init__(self, tp, buffer, *, int64_t start_offset, int32_t leader_epoch=-1,
                 int32_t partition_epoch=-1, bint verify=True, aborted=None, owner=None,
                 int64_t version=0):
        self.tp = tp
        self.owner = owner
        self.version = version
        self._topic = tp[0]
        self._partition = tp[1]
        self._buffer = buffer
        self._aborted = aborted
        self._verify = verify
        self._cursor = BatchCursor(buffer, verify=verify, start_offset=start_offset,
                                   aborted=aborted)
        self.next_offset = start_offset
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self._find_end()

    # The next fetch's offset, from the batches' headers. An impossible header is ignored here: it
    # is reported when the records are read.
    cdef int _find_end(self) except -1:
        cdef const uint8_t* p = self._cursor.start
        cdef BatchInfo info
        cdef int32_t newest = -1
        self.size_bytes = self._cursor.end - p
        self.end_offset = self.next_offset
        self.epoch_starts = []
        self.last_epoch = self.leader_epoch
        while read_batch_header(p, self._cursor.end, &info) == BATCH_OK:
            if info.partition_leader_epoch > newest:
                newest = info.partition_leader_epoch
                self.epoch_starts.append((newest, self.end_offset))
            self.end_offset = max(self.end_offset, info.base_offset + info.last_offset_delta + 1)
            self.last_epoch = max(self.last_epoch, info.partition_leader_epoch)
            p += info.size_bytes
        self.is_cut_off = read_batch_header(p, self._cursor.end, &info) == BATCH_TRUNCATED
        return 0

    def __len__(self):
        return self.size_bytes

    def __bool__(self):
        return True

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordFields fields
        if not self._next(&fields):
            raise StopIteration
        record = self._make(&fields)
        self.next_offset = (<ConsumerRecord>record).offset + 1
        return record

    # The next record. A failure is kept, so that the next call meets it again.
    cdef bint _next(self, RecordFields* fields) except -1:
        if self._failure is not None:
            raise self._failure
        if self.is_drained:
            return False
        try:
            if self._cursor.next_record(fields):
                return True
        except InvalidBatchError as error:
            self._failure = error
            raise
        self._finish()
        return False

    cdef int _finish(self) except -1:
        self.is_drained = True
        self.next_offset = self.end_offset
        self.leader_epoch = self.last_epoch
        return 0

    cdef ConsumerRecord _make(self, const RecordFields* fields):
        cdef BatchView batch = self._cursor.batch
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        if self._source is None or self._source.batch is not batch:
            self._source = RecordSource.__new__(RecordSource)
            self._source.batch = batch
            self._source.topic = self._topic
            self._source.partition = self._partition
            if batch.info.partition_leader_epoch > self.leader_epoch:
                self.leader_epoch = batch.info.partition_leader_epoch
        record.source = self._source
        record.offset = batch.info.base_offset + fields.offset_delta
        record.timestamp = record_timestamp(&batch.info, fields)
        record._key = fields.key
        record._key_size = fields.key_size
        record._value = fields.value
        record._value_size = fields.value_size
        record._size_to_end = <int32_t>(fields.end - fields.value)
        return record

    def skip_to(self, int64_t offset):
        self._cursor.start_offset = max(self._cursor.start_offset, offset)
        self.next_offset = max(self.next_offset, offset)
        self.end_offset = max(self.end_offset, offset)

    def take(self, list out not None, Py_ssize_t max_records):
        cdef RecordFields fields
        cdef ConsumerRecord record
        cdef Py_ssize_t taken = 0
        while taken < max_records:
            try:
                if not self._next(&fields):
                    break
            except InvalidBatchError:
                if taken == 0:
                    raise
                break                       # return the records before it first
            record = self._make(&fields)
            PyList_Append(out, record)
            self.next_offset = record.offset + 1
            taken += 1
        return taken

    def take_columns(self, Columns columns not None, Py_ssize_t max_records):
        cdef Py_ssize_t before = columns.count
        cdef Py_ssize_t taken
        if self._failure is not None:
            raise self._failure
        if self.is_drained:
            return 0
        if max_records > 1:
            columns.reserve(self._cursor)
        try:
            columns.fill(self._cursor, before + max_records)
        except InvalidBatchError as error:
            self._failure = error
            if columns.count == before:
                raise
        taken = columns.count - before
        if taken:
            self.next_offset = (<int64_t*>columns.offset.data)[columns.count - 1] + 1
            self.leader_epoch = max(self.leader_epoch,
                                    self._cursor.batch.info.partition_leader_epoch)
        if taken < max_records and self._failure is None:
            self._finish()
        return taken

    def whole(self):
        if self._failure is not None:
            raise self._failure
        start_offset = self.next_offset
        self._finish()
        return decode(self._buffer, verify=self._verify, start_offset=start_offset,
                      aborted=self._aborted)

    # The offset after the unreadable batch, if its header is readable.
    @property
    def offset_after_failure(self):
        cdef BatchInfo info
        cdef const uint8_t* p
        if self._failure is None:
            return None
        p = self._cursor.start + <Py_ssize_t>self._failure.position
        if read_batch_header(p, self._cursor.end, &info) != BATCH_OK:
            return None
        return info.base_offset + info.last_offset_delta + 1

    def __repr__(self):
        return (f"FetchedRecords({self.tp}, offsets {self.next_offset} to {self.end_offset}, "
                f"{self.size_bytes} bytes)")
