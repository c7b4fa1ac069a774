"""Whether a slice of a segment may be sent. Damage in it is recorded, so that the next lookup skips
it.

Headers are compared with their neighbours, since no checksum covers offsets and epochs. Checksums
need a read of bytes that sendfile would send unread. They are checked when a reader fetches the
same bytes again, as it does if it can't use them, or starts at a new offset.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kstore._fast.disk.page_reader cimport ColdRead, PageReader
from kstore._fast.record.batch cimport (
    BATCH_HEADER_SIZE, BATCH_OK, BATCH_TRUNCATED, BatchInfo, check_batch, read_batch_header)
from kstore._fast.log.log_segment cimport LogSegment
from kstore._fast.log.batch_order cimport Order, begin_order, fits, goes_on
from kstore._fast.log.log_view cimport HEADER_WINDOW, HeaderWindow, LogView, Slice
from kstore._fast.log.read_hints cimport Hint, SENT_UNKNOWN, find_hint, times_sent
from kstore._fast.log.segment_file cimport SegmentFile

from functools import partial

from kstore._fast.disk.page_reader import NotInMemory

cdef enum:
    READ_BYTES = 262144
    # Several groups read the end of a log, and each gets the records that this process has just
    # written: that alone does not suggest damage.
    READERS_OF_OWN = 8
    # Readers of small slices find what they read next with one look.
    LOOK_BYTES = 262144
    # The look for the slice reads headers beyond it.
    BESIDE_BYTES = 2 * HEADER_WINDOW


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
            log.corrupt(log.segment_of(slice.base_offset), slice.position + at)
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
        return True             # rewritten in the meantime
    if depth == CHECK_ALL or (depth == CHECK_SUMS
                              and not segment.sums_checked(slice.position, end)):
        damaged = find_bad_batch(log, file, slice)
        if damaged >= 0:
            log.corrupt(segment, damaged)
            return False
        segment.note_sums(slice.position, end)
        segment.note_checked(slice.position, end)
        return True
    if slice.position >= segment.own_position or segment.was_checked(slice.position, end):
        return True             # this process knows the order of its own writes
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
                log.corrupt(segment, at)
                return False
            at += info.size_bytes
    except OSError:
        if segment.damages is None:
            raise
        return False
    segment.note_checked(slice.position, end)
    return True


# The position of the first batch that has a wrong checksum or does not follow the previous one; -1:
# all are valid.
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


# The segment to search for an offset, and the position where the search starts.
cdef LogSegment find_place(LogView log, int64_t offset, int64_t* position):
    cdef Py_ssize_t at = max(log.segment_index(offset), <Py_ssize_t>0)
    cdef LogSegment segment = <LogSegment>log.segments[at]
    cdef Hint* hint = find_hint(&log.hints, offset)
    if offset >= segment.next_offset and at + 1 < len(log.segments):
        position[0] = 0                     # in a gap
        return <LogSegment>log.segments[at + 1]
    if hint != NULL and hint.segment_base == segment.base_offset:
        position[0] = hint.position
    else:
        position[0] = segment.floor_position(offset)
        if position[0] < 0:
            log.load_index(segment, offset, False)
            position[0] = max(segment.floor_position(offset), <int64_t>0)
    return segment


cdef int64_t readable_bytes(
    LogView log, int64_t offset, int64_t max_bytes, ColdRead seen
) except -1:
    cdef int64_t position, at, end, stop
    cdef LogSegment segment = find_place(log, offset, &position)
    cdef SegmentFile file
    if segment.is_fresh(position):
        return max_bytes
    file = log.file_of(segment)
    if file.pages is None or not file.pages.serving or not file.plain:
        return max_bytes
    at = position
    end = min(at + max_bytes + BESIDE_BYTES, segment.size_bytes)
    if seen is not None and seen.position <= at:
        at = max(at, min(seen.position + seen.size_bytes, end))
    while at < end:
        stop = min(at + STEP_BYTES, end)
        if not is_there(segment, file, at, stop):
            break
        at = stop
    if at > position:
        file.pages.note_read(
            <uint64_t><void*>file, file.fd, position, at - position, segment.size_bytes)
    return max_bytes if at >= end else max(at - position - BESIDE_BYTES, <int64_t>0)


cdef bint is_there(LogSegment segment, SegmentFile file, int64_t at, int64_t stop) except -1:
    cdef int64_t further = min(at + LOOK_BYTES, segment.size_bytes)
    if segment.is_known_resident(at, stop):
        return True
    if further > stop and file.pages.has(file.fd, at, further - at):
        stop = further
    elif not file.pages.has(file.fd, at, stop - at):
        return False
    segment.note_resident(at, stop)
    return True


cdef ColdRead read_in_slice(LogView log, int64_t offset, int64_t max_bytes, object tell):
    cdef int64_t position, end
    cdef LogSegment segment = find_place(log, offset, &position)
    cdef SegmentFile file = log.file_of(segment)
    end = min(position + max_bytes + BESIDE_BYTES, segment.size_bytes)
    return file.pages.read(
        <uint64_t><void*>file, file.fd, position, end - position, segment.size_bytes, tell)


cdef ColdRead bring_in(object lacking, object tell):
    cdef LogView log = lacking.log
    cdef LogSegment segment = lacking.segment
    lacks = lacking.lacks
    place = segment.base_offset if lacks == "wrong" else lacking.place
    return log.pages.bring_in(
        (log, segment, lacks, place), f"reading from {segment.path}",
        partial(_bring_in, log, segment, lacks, place), tell)


def _bring_in(LogView log not None, LogSegment segment not None, str lacks, int64_t place):
    """In a thread: load the data that a read without waiting needs."""
    cdef int known = log.damages_found
    try:
        segment.file()
        if lacks == "damage":
            error = log.owner.corrupt(segment, place)
            if log.damages_found == known:
                log.judged = (segment, place, error)
        elif lacks == "bytes":
            segment.file().read(HEADER_WINDOW, place)
        elif lacks != "file":
            log.owner.load_index(segment, place, lacks == "wrong")
    except FileNotFoundError:
        if segment in log.segments:
            raise                       # otherwise it was removed, and the reader looks elsewhere


# -- for the broker


def read_or_wait(
    LogView log not None, int64_t offset, int64_t max_offset, int64_t max_bytes, ColdRead seen=None
):
    """As log.read(), or the data that must be loaded first."""
    return find_or_wait(log, offset, max_offset, max_bytes, seen, False)


def locate_or_wait(LogView log not None, int64_t offset, int64_t max_offset, ColdRead seen=None):
    """As log.slice_at() for one batch, or the data that must be loaded first."""
    return find_or_wait(log, offset, max_offset, 1, seen, True)


cdef object find_or_wait(
    LogView log, int64_t offset, int64_t max_offset, int64_t max_bytes, ColdRead seen, bint aside
):
    cdef Slice found
    cdef bint out_of_range
    cdef int64_t size
    cdef ColdRead cold = None
    hurry(log)
    try:
        if log.log_start_offset <= offset < min(max_offset, log.log_end_offset):
            size = readable_bytes(log, offset, max_bytes, seen)
            if size == 0:
                cold = read_in_slice(log, offset, min(max_bytes, <int64_t>STEP_BYTES), None)
            max_bytes = min(max_bytes, max(size, <int64_t>1))
            if cold is None and log.locate(
                    offset, max_offset, max_bytes, True, &found, &out_of_range) is not None \
                    and found.size_bytes > size \
                    and readable_bytes(log, offset, found.size_bytes, seen) < found.size_bytes:
                cold = read_in_slice(log, offset, found.size_bytes, None)
        if cold is not None:
            return cold
        if not aside:
            return log.read(offset, max_offset, max_bytes)
        return log.slice_at(offset, max_offset, 1) if log.active.file().plain else None
    except NotInMemory as lacking:
        return bring_in(lacking, None)
    finally:
        log.hurried = 0
