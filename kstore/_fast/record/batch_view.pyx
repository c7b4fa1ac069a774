# Batches for Python: views of a buffer's batches, the complete check of a client's batch, and the
# search for batches in damaged data. batch.pyx has the format, records.pyx the records.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport (
    BATCH_BAD_ATTRIBUTES, BATCH_BAD_COUNT, BATCH_BAD_PRODUCER, BATCH_HEADER_SIZE, BATCH_MAGIC_AT,
    BATCH_NOT_MONOTONIC, BATCH_OK, BATCH_TRUNCATED, COMPRESSION_MASK, DELETE_HORIZON_MASK,
    MAGIC_V2, assign_log_append_time, assign_offset_and_epoch, check_batch, check_monotonic,
    is_compressed, is_control, is_log_append_time, is_transactional, read_batch_header,
    validate_batch, validate_compressed)
from kstore._fast.record.memory cimport MemoryView, view_of

from kstore._fast.record.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, InvalidBatchError


# The complete check of one batch, including decompression.
cdef int _validate_one(const uint8_t* p, const uint8_t* end, BatchInfo* info,
                       int64_t max_decompressed_bytes,
                       int64_t expected_offset) except -1:
    cdef int status
    with nogil:
        status = validate_batch(p, end, info)
    if status == BATCH_OK and is_compressed(info):
        status = validate_compressed(p, info, max_decompressed_bytes)
    if status == BATCH_OK and expected_offset >= 0:
        status = check_monotonic(info, expected_offset)
    return status


def validate(buffer, *, expected_offset=None,
             int64_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """Validate every batch of ``buffer`` completely, decompressing if necessary; raises
    InvalidBatchError.

    The buffer must end with a batch. ``expected_offset`` is for given offsets (KIP-391): base
    offsets must be at or above it, and ascend from batch to batch.
    """
    cdef MemoryView given = view_of(buffer)
    cdef Py_ssize_t size = given.size
    cdef const uint8_t* start = given.data
    cdef Py_ssize_t position = 0
    cdef int64_t expected = -1 if expected_offset is None else expected_offset
    cdef BatchInfo info
    cdef int status
    cdef object view = memoryview(buffer)
    cdef list found = []
    while position < size:
        status = _validate_one(start + position, start + size, &info, max_decompressed_bytes,
                               expected)
        if status != BATCH_OK:
            raise InvalidBatchError(status, position, _detail(status, &info, expected))
        found.append(make_view(view, position, &info))
        position += info.size_bytes
        if expected >= 0:
            expected = info.base_offset + info.last_offset_delta + 1
    return found


cdef str _detail(int status, const BatchInfo* info, int64_t expected):
    if status == BATCH_NOT_MONOTONIC:
        return f"base offset {info.base_offset}, expected at least {expected}"
    if status == BATCH_BAD_COUNT:
        return f"count {info.records_count}, last offset delta {info.last_offset_delta}"
    if status == BATCH_BAD_ATTRIBUTES:
        return f"attributes {info.attributes:#x}"
    if status == BATCH_BAD_PRODUCER:
        return (f"producer id {info.producer_id}, epoch {info.producer_epoch}, "
                f"sequence {info.base_sequence}")
    return ""


cdef BatchView make_view(object view, Py_ssize_t position, const BatchInfo* info):
    cdef BatchView made = BatchView.__new__(BatchView)
    made.info = info[0]
    made.position = position
    made.view = view
    return made


def batches(buffer, *, bint verify=False, Py_ssize_t position=0):
    """The whole batches of ``buffer`` from byte ``position``; a partial one at the end is skipped.

    Raises InvalidBatchError for bytes that are not a batch, and with ``verify`` for a wrong CRC.
    """
    cdef MemoryView given = view_of(buffer)
    cdef Py_ssize_t size = given.size
    cdef const uint8_t* start = given.data
    cdef BatchInfo info
    cdef int status
    cdef object view = memoryview(buffer)
    if position < 0:
        raise ValueError(f"position is {position}: pass 0 or more")
    while position < size:
        status = read_batch_header(start + position, start + size, &info)
        if status == BATCH_TRUNCATED:
            return
        if status == BATCH_OK and verify:
            with nogil:
                status = check_batch(start + position, start + size, &info)
        if status != BATCH_OK:
            raise InvalidBatchError(status, position)
        yield make_view(view, position, &info)
        position += info.size_bytes


def find_batch(buffer, *, Py_ssize_t start, Py_ssize_t stop, int64_t least, int64_t limit):
    cdef MemoryView given = view_of(buffer)
    cdef const uint8_t* data = given.data
    cdef Py_ssize_t size = given.size
    cdef BatchInfo info
    cdef int status
    if start < 0:
        raise ValueError(f"start is {start}: pass 0 or more")
    with nogil:
        while start < stop and start + BATCH_HEADER_SIZE <= size:
            if data[start + BATCH_MAGIC_AT] == MAGIC_V2:
                status = read_batch_header(data + start, data + size, &info)
                if (status == BATCH_OK or status == BATCH_TRUNCATED) \
                        and least <= info.base_offset < limit and info.last_offset_delta >= 0 \
                        and info.last_offset_delta < limit - info.base_offset:
                    break
            start += 1
    return start if start < stop and start + BATCH_HEADER_SIZE <= size else -1


def find_disorder(buffer, *, int64_t least, int64_t limit):
    cdef MemoryView given = view_of(buffer)
    cdef const uint8_t* data = given.data
    cdef Py_ssize_t size = given.size
    cdef Py_ssize_t position = 0
    cdef BatchInfo info
    cdef int status = BATCH_OK
    with nogil:
        while True:
            status = read_batch_header(data + position, data + size, &info)
            if status != BATCH_OK:
                break
            if info.base_offset < least or info.base_offset >= limit \
                    or info.last_offset_delta < 0 \
                    or info.last_offset_delta >= limit - info.base_offset:
                break
            least = info.base_offset + info.last_offset_delta + 1
            position += info.size_bytes
    return (position if status == BATCH_OK else -1), least, position


cdef class BatchView:
    """One batch's header, and its bytes in the buffer that it keeps alive. Created by
    ``batches``.
    """

    def __init__(self):
        raise TypeError("batch views are made by batches() and validate()")

    @property
    def base_offset(self):
        """Offset of the first record (as sent: compaction may have removed it)."""
        return self.info.base_offset

    @property
    def last_offset(self):
        """Offset of the last record (as sent)."""
        return self.info.base_offset + self.info.last_offset_delta

    @property
    def next_offset(self):
        """The offset after the last record."""
        return self.info.base_offset + self.info.last_offset_delta + 1

    @property
    def size_bytes(self):
        """The size of the whole batch, including base offset and length."""
        return self.info.size_bytes

    @property
    def leader_epoch(self):
        """Partition leader epoch that the leader wrote, or -1."""
        return self.info.partition_leader_epoch

    @property
    def crc(self):
        """The stored CRC-32C."""
        return self.info.crc

    @property
    def attributes(self):
        """The 16 attribute bits."""
        return self.info.attributes

    @property
    def compression(self):
        """Compression type 0 to 4."""
        return self.info.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self):
        """0 CreateTime, 1 LogAppendTime."""
        return 1 if is_log_append_time(&self.info) else 0

    @property
    def is_transactional(self):
        """Whether the batch belongs to a transaction."""
        return bool(is_transactional(&self.info))

    @property
    def is_control(self):
        """Whether the batch holds a control record (a transaction marker)."""
        return bool(is_control(&self.info))

    @property
    def delete_horizon_ms(self):
        """The time from which compaction may drop its tombstones and markers, if set."""
        return self.info.base_timestamp if self.info.attributes & DELETE_HORIZON_MASK else None

    @property
    def base_timestamp(self):
        """The base of the records' timestamp deltas."""
        return self.info.base_timestamp

    @property
    def max_timestamp(self):
        """The largest timestamp, or the append time with LogAppendTime."""
        return self.info.max_timestamp

    @property
    def producer_id(self):
        """Producer id, or -1."""
        return self.info.producer_id

    @property
    def producer_epoch(self):
        """Producer epoch, or -1."""
        return self.info.producer_epoch

    @property
    def base_sequence(self):
        """Sequence number of the first record, or -1."""
        return self.info.base_sequence

    @property
    def records_count(self):
        """Number of records in the batch."""
        return self.info.records_count

    @property
    def data(self):
        """The batch's bytes, not copied."""
        return self.view[self.position:self.position + self.info.size_bytes]

    def __repr__(self):
        return (f"BatchView(offsets {self.base_offset}..{self.last_offset}, "
                f"{self.records_count} records, {self.size_bytes} bytes, "
                f"leader epoch {self.leader_epoch})")


def assign(batch, *, int64_t base_offset, int32_t leader_epoch, log_append_time=None):
    """Set the leader's fields in place; a ``log_append_time`` (ms) recomputes the CRC."""
    cdef BatchInfo info
    cdef MemoryView given = view_of(batch, True)
    cdef Py_ssize_t size = given.size
    cdef uint8_t* start = given.data
    cdef int status = read_batch_header(start, start + size, &info)
    if status != BATCH_OK:
        raise InvalidBatchError(status, 0)
    assign_offset_and_epoch(start, base_offset, leader_epoch)
    if log_append_time is not None:
        assign_log_append_time(start, log_append_time, info.size_bytes)
