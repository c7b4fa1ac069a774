"""Whether a slice of a segment may be sent; what is damaged in it is made known, so that the next
look goes round it.

Headers are compared with their neighbours, since no checksum covers offsets and epochs. Checksums
cost a read of what sendfile would send unread. They are checked when a reader asks again for what
was sent before, as it does when it can't use it, or begins at a new offset.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t

from kstore._fast.record.batch cimport (
    BATCH_HEADER_SIZE, BATCH_OK, BATCH_TRUNCATED, BatchInfo, check_batch, read_batch_header)
from kstore._fast.log.log_segment cimport LogSegment
from kstore._fast.log.batch_order cimport Order, begin_order, fits, goes_on
from kstore._fast.log.log_view cimport HeaderWindow, LogView, Slice
from kstore._fast.log.read_hints cimport SENT_UNKNOWN, times_sent
from kstore._fast.log.segment_file cimport SegmentFile

cdef enum:
    READ_BYTES = 262144
    # Several groups read the end of a log, each what this process has just written: that alone is
    # no reason to doubt it.
    READERS_OF_OWN = 8


cdef Depth depth_for_reader(LogView log, int64_t offset, const Slice* slice) except *:
    cdef int sent = times_sent(&log.hints, offset)
    cdef LogSegment segment
    if sent == 0:
        return CHECK_HEADERS
    if sent != SENT_UNKNOWN and sent < READERS_OF_OWN:
        segment = log.segment_of(slice.base_offset)
        if segment is not None and slice.position >= segment.own_position:
            return CHECK_HEADERS
    return CHECK_SUMS


cdef bint is_good_copy(
    LogView log, const uint8_t* p, const Slice* slice, Depth depth
) except -1:
    cdef LogSegment segment
    cdef Order order
    cdef BatchInfo info
    cdef int status
    cdef int64_t at = 0
    cdef int64_t end = slice.position + slice.size_bytes
    segment = log.segment_of(slice.base_offset) if depth != CHECK_HEADERS else None
    if depth == CHECK_SUMS and segment is not None and segment.sums_checked(slice.position, end):
        segment = None
    begin_order(log.epochs, slice.base_offset, slice.next_offset, &order)
    while at < slice.size_bytes:
        if segment is None:
            status = read_batch_header(p + at, p + slice.size_bytes, &info)
        else:
            status = check_batch(p + at, p + slice.size_bytes, &info)
        if status != BATCH_OK or not (goes_on(&info, &order) or fits(log.epochs, &info, &order)):
            log.owner.corrupt(log.segment_of(slice.base_offset), slice.position + at)
            return False
        at += info.size_bytes
    if segment is not None:
        segment.note_sums(slice.position, end)
    return True


cdef bint is_good_in_file(
    LogView log, SegmentFile file, const Slice* slice, Depth depth
) except -1:
    cdef LogSegment segment = log.segment_of(slice.base_offset)
    cdef int64_t end = slice.position + slice.size_bytes
    cdef int64_t damaged
    if segment is None or segment.handle is not file:
        return True             # written anew meanwhile
    if depth == CHECK_ALL or (depth == CHECK_SUMS
                              and not segment.sums_checked(slice.position, end)):
        damaged = find_bad_batch(log, file, slice)
        if damaged >= 0:
            log.owner.corrupt(segment, damaged)
            return False
        segment.note_sums(slice.position, end)
        segment.note_checked(slice.position, end)
        return True
    if slice.position >= segment.own_position or segment.was_checked(slice.position, end):
        return True             # this process has the order of what it has written
    return are_headers_good(log, segment, slice)


cdef bint are_headers_good(LogView log, LogSegment segment, const Slice* slice) except -1:
    cdef HeaderWindow window
    cdef BatchInfo info
    cdef Order order
    cdef int64_t at = slice.position
    cdef int64_t end = at + slice.size_bytes
    window.start = window.size = 0
    begin_order(log.epochs, slice.base_offset, slice.next_offset, &order)
    try:
        while at < end and log.peek(segment, at, &window, &info):
            if not goes_on(&info, &order) and not fits(log.epochs, &info, &order):
                log.owner.corrupt(segment, at)
                return False
            at += info.size_bytes
    except OSError:
        if segment.damages is None:
            raise
        return False
    segment.note_checked(slice.position, end)
    return True


# Where the first batch lies that has a wrong checksum or does not follow the one before it; -1:
# all are good.
cdef int64_t find_bad_batch(LogView log, SegmentFile file, const Slice* slice) except -2:
    cdef int64_t end = slice.position + slice.size_bytes
    cdef int64_t at = slice.position
    cdef Py_ssize_t capacity = <Py_ssize_t>min(slice.size_bytes, <int64_t>READ_BYTES)
    cdef Py_ssize_t size, done
    cdef uint8_t* data = <uint8_t*>PyMem_RawMalloc(capacity)
    cdef BatchInfo info
    cdef Order order
    begin_order(log.epochs, slice.base_offset, slice.next_offset, &order)
    try:
        while at < end:
            if data == NULL:
                raise MemoryError
            size = file.read_into(data, <Py_ssize_t>min(<int64_t>capacity, end - at), at)
            done = log.count_good(data, size, &order)
            at += done
            if done == 0:
                if size < BATCH_HEADER_SIZE \
                        or read_batch_header(data, data + size, &info) != BATCH_TRUNCATED \
                        or info.size_bytes <= capacity or info.size_bytes > end - at:
                    return at
                capacity = info.size_bytes      # a batch larger than the buffer
                PyMem_RawFree(data)
                data = <uint8_t*>PyMem_RawMalloc(capacity)
        return -1
    finally:
        PyMem_RawFree(data)
