# The contents of one log and how to find an offset: segments, offsets, epochs, producers, the
# lookup of a slice of complete batches, and the scan that rebuilds all this from a segment's bytes.
# It appends nothing (log_core.pyx) and does not decide which files exist (kstore.log).

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport (
    BATCH_HEADER_SIZE, BATCH_NOT_MONOTONIC, BATCH_OK, BATCH_TRUNCATED, BatchInfo, check_batch,
    is_control, read_batch_header)
from kstore._fast.log.batch_facts cimport read_end_marker
from kstore._fast.log.batch_order cimport begin_order, fits, goes_on
from kstore._fast.log.producer_table cimport EndMarker
from kstore._fast.log.read_hints cimport Hint, find_hint, forget_all, remember

from kstore._fast.disk.page_reader import NotInMemory

cdef enum:
    SCAN_CHUNK = 262144
    SCAN_ALL = 0
    SCAN_INDEX = 1
    SCAN_PRODUCERS = 2

_SCAN_MODES = {"all": SCAN_ALL, "index": SCAN_INDEX, "producers": SCAN_PRODUCERS}

cdef int64_t LARGEST_DELTA = 0x7FFFFFFFLL         # of a record's offset from its segment's


cdef class LogView:
    def __init__(self, owner, *, int64_t index_interval_bytes=4096):
        self.owner = owner
        self.segments = []
        self.epochs = EpochCache()
        self.producers = ProducerTable()
        self.index_interval_bytes = index_interval_bytes
        self.follows_end = True
        self.forget_hints()

    # -- readers that must not wait for the disk

    cdef int load_index(self, LogSegment segment, int64_t offset, bint wrong) except -1:
        if must_hurry(self):
            raise NotInMemory(self, segment, "wrong" if wrong else "index", offset)
        self.owner.load_index(segment, offset, wrong)

    cdef object corrupt(self, LogSegment segment, int64_t position):
        if not must_hurry(self):
            return self.owner.corrupt(segment, position)
        if self.judged is None or self.judged[:2] != (segment, position):
            raise NotInMemory(self, segment, "damage", position)
        (_, _, error), self.judged = self.judged, None
        return error

    cdef SegmentFile file_of(self, LogSegment segment):
        if segment.handle is None and must_hurry(self):
            raise NotInMemory(self, segment, "file", 0)
        return segment.file()

    # -- finding

    cdef Py_ssize_t segment_index(self, int64_t offset) noexcept:
        cdef list segments = self.segments
        cdef Py_ssize_t low = 0, high = len(segments), middle
        if high and offset >= (<LogSegment>segments[high - 1]).base_offset:
            return high - 1
        while low < high:
            middle = (low + high) // 2
            if (<LogSegment>segments[middle]).base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    cdef LogSegment segment_of(self, int64_t offset):
        cdef Py_ssize_t at = self.segment_index(offset)
        return <LogSegment>self.segments[at] if at >= 0 else None

    cdef SegmentFile locate(self, int64_t offset, int64_t max_offset, int64_t max_bytes,
                            bint min_one, Slice* out, bint* out_of_range):
        cdef SegmentFile file
        cdef int known, cuts
        while True:
            out.size_bytes = 0
            out_of_range[0] = offset < self.log_start_offset or offset > self.log_end_offset
            if out_of_range[0]:
                return None
            max_offset = min(max_offset, self.log_end_offset)
            if offset >= max_offset:
                return None
            known, cuts = self.damages_found, self.cuts     # increase only for new damage
            try:
                return self.locate_good(offset, max_offset, max_bytes, min_one, out)
            except OSError:
                if self.damages_found == known and self.cuts == cuts:
                    raise               # otherwise the damage is now skipped, or known

    cdef SegmentFile locate_good(self, int64_t offset, int64_t max_offset, int64_t max_bytes,
                                 bint min_one, Slice* out):
        cdef int64_t position, end
        cdef int cuts = self.cuts
        cdef LogSegment segment = self.find_start(offset, &position, &out.base_offset)
        if segment is None or out.base_offset >= max_offset:
            return None
        end = self.find_end(segment, position, max_offset, max_bytes, min_one, out)
        if end <= position:
            return None
        out.position = position
        out.size_bytes = end - position
        if self.cuts == cuts:               # otherwise the position may be in a removed file
            remember(&self.hints, out.next_offset, segment.base_offset, end)
        return self.file_of(segment)

    # The segment and position of the batch with the offset, or of the first one after it.
    cdef LogSegment find_start(self, int64_t offset, int64_t* position, int64_t* base_offset):
        cdef LogSegment segment
        cdef HeaderWindow window
        cdef BatchInfo info
        cdef Py_ssize_t at
        cdef Hint* hint = find_hint(&self.hints, offset)
        if hint != NULL:
            segment = self.segment_of(offset)
            if segment is not None and segment.damages is None \
                    and segment.base_offset == hint.segment_base \
                    and hint.position < segment.size_bytes:
                position[0] = hint.position
                base_offset[0] = offset
                return segment
        at = max(self.segment_index(offset), <Py_ssize_t>0)
        while at < len(self.segments):
            segment = <LogSegment>self.segments[at]
            window.start = window.size = 0
            position[0] = self.indexed_position(segment, offset, &window)
            if segment.damages is not None:
                position[0] = self.behind_damage(segment, position[0], offset)
            if self.skip_to(segment, position, offset, &window, &info):
                base_offset[0] = info.base_offset
                return segment
            at += 1
        return None

    # Where the search for an offset begins in a segment, by its index. An entry is valid if the
    # batch at its position has its offset. Otherwise the index is built again from the segment.
    cdef int64_t indexed_position(self, LogSegment segment, int64_t offset,
                                  HeaderWindow* window) except -1:
        cdef int64_t position = segment.floor_position(offset)
        cdef int64_t found
        if position < 0:
            self.load_index(segment, offset, False)
            position = segment.floor_position(offset)
        if position > 0:
            found = self.indexed_batch(segment, position, window)
            if found < 0 or found > offset:
                self.load_index(segment, offset, True)
                position = segment.floor_position(offset)
        return max(position, <int64_t>0)

    # The base offset of the batch at an entry's position; -2: there is no batch, or another one.
    # The window is read here, and reused by the search from there.
    cdef int64_t indexed_batch(self, LogSegment segment, int64_t position,
                               HeaderWindow* window) except -1:
        cdef BatchInfo info
        cdef int64_t offset = -1
        cdef int status
        if segment.floor_below(position, &offset) != position \
                or position + BATCH_HEADER_SIZE > segment.size_bytes:
            return -2
        window.start = position
        window.size = self.file_of(segment).read_into(
            window.bytes, min(<int64_t>HEADER_WINDOW, segment.size_bytes - position), position)
        if window.size < BATCH_HEADER_SIZE:
            return -2
        status = read_batch_header(window.bytes, window.bytes + window.size, &info)
        if (status != BATCH_OK and status != BATCH_TRUNCATED) or info.base_offset != offset:
            return -2
        return offset

    # Where the search for an offset begins in a segment with damage: after damage that ends before
    # the offset. If damage hides the offset, it is raised.
    cdef int64_t behind_damage(self, LogSegment segment, int64_t position,
                               int64_t offset) except -1:
        for damage in segment.damages:
            if damage.first_offset <= offset < damage.next_offset:
                raise damage.error()
            if damage.next_offset <= offset:
                position = max(position, <int64_t>damage.end_position)
        return position

    # Reads the header of the batch at a position through the window. False: there is none.
    cdef bint peek(self, LogSegment segment, int64_t at, HeaderWindow* window,
                   BatchInfo* info) except -1:
        cdef int status
        cdef int64_t wanted = min(<int64_t>HEADER_WINDOW, segment.size_bytes - at)
        if wanted < BATCH_HEADER_SIZE:
            return False
        if at < window.start or at + BATCH_HEADER_SIZE > window.start + window.size:
            if window.size and at > window.start + HEADER_WINDOW:
                wanted = BATCH_HEADER_SIZE      # large batches: the next header is not near
                if must_hurry(self):
                    segment.must_be_there(self, self.pages, at, wanted)
            window.start = at
            window.size = self.file_of(segment).read_into(window.bytes, wanted, at)
            if window.size < BATCH_HEADER_SIZE:
                raise self.corrupt(segment, at)
        status = read_batch_header(window.bytes + (at - window.start),
                                   window.bytes + window.size, info)
        if (status != BATCH_OK and status != BATCH_TRUNCATED) or info.last_offset_delta < 0 \
                or at + info.size_bytes > segment.size_bytes:
            raise self.corrupt(segment, at)
        return True

    # Moves position to the first batch that ends at or after offset. False: the segment has none.
    cdef bint skip_to(self, LogSegment segment, int64_t* position, int64_t offset,
                      HeaderWindow* window, BatchInfo* info) except -1:
        cdef Order order
        cdef int64_t known
        segment.floor_below(position[0], &known)
        begin_order(self.epochs, known, segment.next_offset, &order)
        while self.peek(segment, position[0], window, info):
            if not fits(self.epochs, info, &order):
                raise self.corrupt(segment, position[0])
            if info.base_offset + info.last_offset_delta >= offset:
                return True
            position[0] += info.size_bytes
        return False

    # The end of the complete batches from position that fit; position itself if none fits.
    cdef int64_t find_end(self, LogSegment segment, int64_t position, int64_t max_offset,
                          int64_t max_bytes, bint min_one, Slice* out) except -1:
        cdef BatchInfo info
        cdef Order order
        cdef int64_t limit = position + max_bytes
        cdef int64_t damaged = -1           # where the next damaged part begins
        cdef int64_t at, offset
        cdef HeaderWindow window
        window.start = window.size = 0
        if segment.damages is not None:
            for damage in segment.damages:
                if damage.position >= position:
                    damaged = damage.position
                    limit = min(limit, damaged)
                    max_offset = min(max_offset, <int64_t>damage.first_offset)
                    break
        if max_offset >= segment.next_offset and limit >= segment.size_bytes:
            out.next_offset = segment.next_offset
            return segment.size_bytes
        # Start after the batches that must fit by the index, so that only the range between two
        # entries is read.
        at = segment.floor_below(limit, &offset)
        if offset > max_offset:
            at = segment.floor_below(segment.floor_position(max_offset), &offset)
        if at > position and at != damaged and self.indexed_batch(segment, at, &window) < 0:
            self.load_index(segment, offset, True)
            at = position
        if at <= position:
            at = position
            offset = out.base_offset
        out.next_offset = offset
        begin_order(self.epochs, offset, segment.next_offset, &order)
        while at != damaged and self.peek(segment, at, &window, &info):
            # The batch after the last one, too: its offset shows whether the earlier ones are
            # right.
            if not fits(self.epochs, &info, &order):
                raise self.corrupt(segment, at)
            if info.base_offset + info.last_offset_delta >= max_offset:
                break
            if at + info.size_bytes > limit and not (min_one and at == position):
                break
            at += info.size_bytes
            out.next_offset = info.base_offset + info.last_offset_delta + 1
        return at

    # -- after an append or a scan

    cdef int note_batch(self, LogSegment segment, const BatchInfo* info, int64_t position,
                        bint epochs) except -1 nogil:
        if segment.bytes_since_entry > self.index_interval_bytes:
            with gil:
                segment.add_entry(info.base_offset, position)
        segment.bytes_since_entry += info.size_bytes
        if info.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = info.max_timestamp
        if position == 0:
            segment.first_timestamp = info.max_timestamp
        # In this order: a concurrent reader has a bound for all bytes that it sees.
        segment.next_offset = info.base_offset + info.last_offset_delta + 1
        segment.size_bytes = position + info.size_bytes
        if epochs and info.partition_leader_epoch != self.epochs.latest_epoch \
                and info.partition_leader_epoch >= 0:
            with gil:
                self.epochs.assign(info.partition_leader_epoch, info.base_offset)
        return 0

    # A batch with a producer id that is already in the log: no checks are left.
    cdef int note_producer(self, const uint8_t* p, const BatchInfo* info) except -1:
        cdef EndMarker marker
        cdef int64_t first, last
        if is_control(info):
            if not read_end_marker(p, info, &marker):
                return 0
            self.producers.stage(info, info.base_offset, False, False, &marker, &first, &last)
        else:
            self.producers.stage(info, info.base_offset, False, False, NULL, &first, &last)
        self.producers.commit()
        return 0

    # Records below this may become visible when all replicas have them.
    cdef int64_t visible_end(self) noexcept:
        if not self.shows_durable:
            return self.log_end_offset
        return min(max(self.durable_offset, self.log_start_offset), self.log_end_offset)

    # The end offset of a replica that requests this offset. If records were lost, the log has a
    # gap: a replica that requests an offset in the gap has everything before it.
    cdef int64_t reached_by(self, int64_t offset) noexcept:
        cdef Py_ssize_t count = len(self.segments)
        if self.active.size_bytes == 0 and count > 1 and offset < self.active.base_offset \
                and offset >= (<LogSegment>self.segments[count - 2]).next_offset:
            return self.log_end_offset
        return offset

    cdef int note_end(self) except -1:
        cdef int64_t unstable
        if self.follows_end:
            self.high_watermark = self.visible_end()
        if not self.producers.any_seen:
            self.last_stable_offset = self.high_watermark
            return 0
        unstable = self.producers.first_unstable(self.high_watermark)
        self.last_stable_offset = self.high_watermark
        if 0 <= unstable < self.high_watermark:
            self.last_stable_offset = unstable
        return 0

    cdef int scan_chunk(self, LogSegment segment, const uint8_t* p, Py_ssize_t size,
                        int64_t position, int64_t producers_from, int mode, int64_t limit,
                        int32_t* epoch, Py_ssize_t* used) except -1 nogil:
        cdef const uint8_t* end = p + size
        cdef BatchInfo info
        cdef int status = BATCH_OK
        used[0] = 0
        while p < end:
            status = check_batch(p, end, &info)
            if status != BATCH_OK:
                return status
            if mode == SCAN_PRODUCERS:
                if info.producer_id >= 0 and info.base_offset >= producers_from:
                    with gil:
                        self.note_producer(p, &info)
                used[0] += info.size_bytes
                p += info.size_bytes
                continue
            if info.base_offset < segment.next_offset or info.base_offset >= limit \
                    or info.last_offset_delta < 0 \
                    or info.last_offset_delta >= limit - info.base_offset:
                return BATCH_NOT_MONOTONIC
            if info.partition_leader_epoch < epoch[0] and info.partition_leader_epoch != -1:
                return BATCH_NOT_MONOTONIC
            epoch[0] = max(epoch[0], info.partition_leader_epoch)
            self.note_batch(segment, &info, position + used[0], mode == SCAN_ALL)
            if mode == SCAN_ALL and info.producer_id >= 0 and info.base_offset >= producers_from:
                with gil:
                    self.note_producer(p, &info)
            used[0] += info.size_bytes
            p += info.size_bytes
        return status

    # -- for kstore.log

    def scan(self, LogSegment segment not None, int64_t position, int64_t end, *,
             int64_t producers_from=0, str into="all", int64_t limit=-1):
        cdef int mode = _SCAN_MODES[into]
        cdef Py_ssize_t room = SCAN_CHUNK, size, used
        cdef uint8_t* chunk = <uint8_t*>PyMem_RawMalloc(room)
        cdef BatchInfo info
        cdef int status = BATCH_OK
        cdef int32_t epoch = self.epoch_before(segment.next_offset)
        if chunk == NULL:
            raise MemoryError
        if limit < 0:
            limit = segment.base_offset + LARGEST_DELTA + 1
        try:
            while position < end:
                size = segment.file().read_into(chunk, min(<int64_t>room, end - position), position)
                if size == 0:
                    return position, BATCH_TRUNCATED
                with nogil:
                    status = self.scan_chunk(segment, chunk, size, position, producers_from,
                                             mode, limit, &epoch, &used)
                position += used
                if status == BATCH_TRUNCATED and used == 0:
                    read_batch_header(chunk, chunk + size, &info)
                    if size < room or info.size_bytes <= room or info.size_bytes > end - position:
                        return position, BATCH_TRUNCATED
                    PyMem_RawFree(chunk)
                    room = info.size_bytes
                    chunk = <uint8_t*>PyMem_RawMalloc(room)
                    if chunk == NULL:
                        raise MemoryError
                elif status != BATCH_OK and status != BATCH_TRUNCATED:
                    return position, status
            return position, BATCH_OK
        finally:
            PyMem_RawFree(chunk)

    # The leader epoch of the record before an offset. An epoch that begins there has no records.
    cdef int32_t epoch_before(self, int64_t offset) noexcept:
        cdef int at = self.epochs.count - 1
        while at >= 0 and self.epochs.entries[at].start_offset >= offset:
            at -= 1
        return self.epochs.entries[at].epoch if at >= 0 else -1

    def set_offsets(self, int64_t log_start_offset, int64_t log_end_offset, int64_t high_watermark):
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), self.visible_end())
        self.note_end()

    def set_high_watermark(self, int64_t offset):
        self.high_watermark = min(max(offset, self.log_start_offset), self.visible_end())
        self.note_end()

    def set_durable_offset(self, int64_t offset):
        self.durable_offset = max(self.durable_offset, offset)
        if self.shows_durable:
            self.note_end()

    def set_log_start_offset(self, int64_t offset):
        self.log_start_offset = offset
        self.set_high_watermark(self.high_watermark)

    def set_segments(self, list segments not None):
        self.cuts += 1
        self.segments = segments
        self.active = <LogSegment>segments[len(segments) - 1]
        self.forget_hints()

    def forget_hints(self):
        forget_all(&self.hints)

    def slice_at(self, int64_t offset, int64_t max_offset, int64_t max_bytes, bint min_one=True):
        """(path, position, size, base offset, next offset), or None if nothing can be read."""
        cdef Slice out
        cdef bint out_of_range
        cdef SegmentFile file = self.locate(offset, max_offset, max_bytes, min_one, &out,
                                            &out_of_range)
        if out_of_range:
            raise self.owner.out_of_range(offset)
        if file is None:
            return None
        return file.path, out.position, out.size_bytes, out.base_offset, out.next_offset

    def read(self, int64_t offset, int64_t max_offset, int64_t max_bytes, bint min_one=True):
        """The bytes of the slice at offset, and the next offset to read; b"" if there is none."""
        cdef Slice out
        cdef bint out_of_range
        cdef bytes data
        cdef int cuts = self.cuts
        cdef SegmentFile file = self.locate(offset, max_offset, max_bytes, min_one, &out,
                                            &out_of_range)
        if out_of_range:
            raise self.owner.out_of_range(offset)
        if file is None:
            return b"", max(offset, min(max_offset, self.log_end_offset))
        data = PyBytes_FromStringAndSize(NULL, out.size_bytes)
        cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t good = file.read_into(p, out.size_bytes, out.position)
        cdef int known = self.damages_found
        cdef Order order
        begin_order(self.epochs, out.base_offset, out.next_offset, &order)
        good = self.count_good(p, good, &order)
        if good == out.size_bytes:
            return data, out.next_offset
        # The records before the damage are returned; a read that begins at it raises.
        if self.cuts == cuts:
            error = self.corrupt(self.segment_of(out.base_offset), out.position + good)
            if self.damages_found == known and self.cuts == cuts:
                raise error
        return self.read(offset, max_offset, max_bytes, min_one)

    # The size of the complete, valid batches at the beginning.
    cdef Py_ssize_t count_good(self, const uint8_t* p, Py_ssize_t size, Order* order) except -1:
        cdef Py_ssize_t good = 0
        cdef BatchInfo info
        with nogil:
            while good < size and check_batch(p + good, p + size, &info) == BATCH_OK \
                    and (goes_on(&info, order) or fits(self.epochs, &info, order)):
                good += info.size_bytes
        return good

    def note_damages(self, LogSegment segment not None, tuple damages not None):
        """These parts of a segment are damaged; reads skip them from now on."""
        segment.damages = damages or None
        segment.forget_checked()
        self.damages_found += 1
        self.forget_hints()

    def mark_entry(self, LogSegment segment not None):
        """Start an index entry with the next batch, because there is damage before it."""
        segment.bytes_since_entry = self.index_interval_bytes + 1
