# The append core of one log, for every origin: analyse, plan (append_plan.pyx), write, commit.
# Nothing that others see changes before the write has succeeded. One lock per log serializes the
# appends of many threads; large batches release the GIL. kstore.log opens, rolls, removes files.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore._fast.error_codes cimport (
    INVALID_PRODUCE_OFFSET, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NONE, NOT_LEADER_OR_FOLLOWER)
from kstore._fast.disk.page_reader cimport PageReader
from kstore._fast.log.append_plan cimport (
    LARGEST_OFFSET_DELTA, MAX_PIECES, NO_LIMIT, ORIGIN_CLIENT, ORIGIN_COORDINATOR, ORIGIN_EXACT,
    ORIGIN_GIVEN_OFFSETS, ORIGIN_REPLICA, as_they_are, make_info)
from kstore._fast.log.locked_log cimport LockedLog
from kstore._fast.log.log_segment cimport FRESH_EACH_MS, LogSegment
from kstore._fast.log.read_hints cimport remember
from kstore._fast.log.segment_file cimport SegmentFile, iovec
from kstore._fast.record.batch cimport BATCH_OK, BatchInfo, read_batch_header
from kstore._fast.record.builder cimport (
    RecordBatchBuilder, build_single, milliseconds, single_batch_room)
from kstore._fast.record.memory cimport MemoryView, view_of

cdef enum:
    OFFSET_INDEX_ENTRY_BYTES = 8            # in Kafka's index file, as segment.index.bytes counts
    NO_TERM = -1                            # appended by the log's owner, now
    NEWEST_EPOCH = -1                       # the leader epoch of the newest batch; of none: 0

ORIGINS = {"client": ORIGIN_CLIENT, "coordinator": ORIGIN_COORDINATOR, "replica": ORIGIN_REPLICA,
           "given": ORIGIN_GIVEN_OFFSETS, "exact": ORIGIN_EXACT}


cdef void begin_result(LogCore core, AppendResult* out) noexcept:
    """An append without batches yet."""
    out.error_code = NONE
    out.base_offset = out.last_offset = out.log_append_time_ms = -1
    out.log_start_offset = core.log_start_offset
    out.log_end_offset = out.end_before = core.log_end_offset
    out.duplicate = False


cdef class LogCore(LockedLog):
    def __init__(self, owner, *, clock=None, bint writable=True, DirCalm calm=None, appends=None,
                 PageReader pages=None):
        super().__init__(owner)
        self.pages = pages
        self.clock = clock
        self.calm = DirCalm() if calm is None else calm
        self.appends = appends
        self.closed = not writable
        self.plan = AppendPlan()
        self.segment_ms = NO_LIMIT
        self.segment_index_entries = NO_LIMIT

    def __dealloc__(self):
        PyMem_RawFree(self.scratch)

    def configure(self, *, int64_t segment_bytes, int64_t segment_ms, int64_t segment_index_bytes,
                  int64_t index_interval_bytes, int64_t max_message_bytes, bint log_append_time,
                  bint compacted, int64_t before_max_ms, int64_t after_max_ms):
        self.segment_ms = segment_ms
        self.segment_index_entries = segment_index_bytes // OFFSET_INDEX_ENTRY_BYTES
        self.index_interval_bytes = index_interval_bytes
        self.plan.segment_bytes = segment_bytes
        self.plan.max_message_bytes = max_message_bytes
        self.plan.log_append_time = log_append_time
        self.plan.compacted = compacted
        self.plan.before_max_ms = before_max_ms
        self.plan.after_max_ms = after_max_ms

    @property
    def max_message_bytes(self):
        return self.plan.max_message_bytes

    def take_dirty(self):
        """Whether anything was appended since the last call."""
        cdef bint dirty = self.dirty
        self.dirty = False
        return bool(dirty)

    cdef int64_t now_ms(self) except -2:
        cdef timespec now
        if self.clock is not None:
            return self.clock.now_ms()
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    # -- append

    cdef int append(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch, int origin,
                    AppendResult* out) except -1:
        return self.append_seen(data, size_bytes, leader_epoch, origin, None, out)

    cdef int append_seen(self, uint8_t* data, Py_ssize_t size_bytes, int32_t leader_epoch,
                         int origin, Verdict seen, AppendResult* out,
                         int64_t term=NO_TERM, bint summed=False) except -1:
        self.acquire()
        self.plan.seen = seen
        self.plan.summed = summed
        self.patient = term != NO_TERM
        try:
            if term != NO_TERM and term != self.term:
                begin_result(self, out)
                out.error_code = NOT_LEADER_OR_FOLLOWER
            else:
                self.append_locked(
                    data, size_bytes, leader_epoch, origin, False, self.now_ms(), out)
        finally:
            self.plan.seen = None
            self.plan.summed = self.patient = False
            self.release()
        if self.on_append is not None and out.error_code == NONE:
            self.on_append()
        return 0

    cdef int append_pieces(self, AppendPiece* pieces, int count, int32_t leader_epoch) except -1:
        cdef iovec[MAX_PIECES] parts
        cdef int64_t position, now = self.now_ms()
        cdef SegmentFile file
        cdef int i, taken
        self.acquire()
        self.appending = True
        try:
            for i in range(count):
                begin_result(self, &pieces[i].result)
            taken = self.plan.plan_pieces(
                self.producers, pieces, count, self.log_end_offset,
                self.epoch_before(self.log_end_offset), leader_epoch, now, parts)
            if taken == 0:
                return 0
            position = self.active.size_bytes
            file = self.active.file()
            file.timed = self.calm.threaded
            file.append_parts(parts, taken, self.plan.size_bytes())
            self.calm.note_write(file.write_us, not self.patient)
            self.commit(position)
            if now - self.active.next_fresh_ms >= FRESH_EACH_MS:
                self.active.note_fresh(position, now)
        finally:
            self.appending = False
            self.producers.forget_staged()
            self.release()
        if self.on_append is not None:
            self.on_append()
        return 0

    cdef bint may_append_pieces(self, const AppendPiece* pieces, int count) except -1:
        """Whether nothing is before them, no segment ends and no disk space must be reserved."""
        cdef Py_ssize_t size = 0
        cdef int i
        if self.closed or self.appending or self.queued or self.held is not None \
                or not self.is_free() \
                or self.page is not None:
            return False
        if self.calm.threaded and not self.calm.is_calm():
            return False
        if self.active is None \
                or self.log_end_offset - self.active.base_offset > LARGEST_OFFSET_DELTA // 2:
            return False                    # together they might exceed the limits
        for i in range(count):
            size += pieces[i].size
            if not self.stays_in_segment(pieces[i].data, pieces[i].size, False):
                return False
        return self.active.size_bytes + size <= self.plan.segment_bytes \
            and self.active.handle.has_room(size)

    # -- whether it may be appended at once

    cdef bint may_append_now(self, const uint8_t* data, Py_ssize_t size, bint given,
                             Py_ssize_t most=DIRECT_BYTES) except -1:
        if not self.calm.threaded:
            return True
        return (
            size <= most and self.queued == 0 and self.held is None
            and self.calm.is_calm() and self.is_free()
            and self.stays_in_segment(data, size, given))

    cdef bint stays_in_segment(
        self, const uint8_t* data, Py_ssize_t size, bint given
    ) except -1:
        """Whether no file must be opened or created for it, and no disk space reserved. Invalid
        batches are refused before any of that.
        """
        cdef const uint8_t* end = data + size
        cdef int64_t offset = self.log_end_offset
        cdef int64_t newest = -1
        cdef LogSegment active = self.active
        cdef BatchInfo info
        if active is None or active.handle is None or not active.handle.has_room(size):
            return False
        while data < end and read_batch_header(data, end, &info) == BATCH_OK:
            offset = (info.base_offset if given else offset) + info.last_offset_delta + 1
            newest = max(newest, info.max_timestamp)
            data += info.size_bytes
        return not self.is_full(
            size, offset - 1, newest, 0 if active.first_timestamp >= 0 else self.now_ms())

    def refuse_queued(self):
        """Queued appends that have not started are not done any more."""
        self.term += 1

    cdef int append_locked(self, uint8_t* data, Py_ssize_t size, int32_t leader_epoch,
                           int origin, bint trusted, int64_t now,
                           AppendResult* out) except -1:
        begin_result(self, out)
        if self.closed:
            out.error_code = KAFKA_STORAGE_ERROR
            return 0
        if self.appending:
            raise RuntimeError("an append began inside another append to the same log")
        self.appending = True
        try:
            self.append_planned(data, size, leader_epoch, origin, trusted, now, out)
        finally:
            self.appending = False
            self.producers.forget_staged()
        return 0

    cdef int append_planned(self, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int origin,
                            bint trusted, int64_t now, AppendResult* out) except -1:
        cdef AppendPlan plan = self.plan
        cdef SegmentFile file
        cdef int64_t position
        cdef int32_t epoch
        out.error_code = plan.analyse(data, size, origin, trusted)
        if out.error_code == NONE and not as_they_are(origin):
            out.error_code = plan.check_limits(size)
            if out.error_code == NONE and plan.log_append_time:
                plan.take_time(now)
            elif out.error_code == NONE:
                out.error_code = plan.check_times(data, now)
        if out.error_code == NONE:
            epoch = self.epoch_before(self.log_end_offset)
            out.error_code = plan.place(self.log_end_offset, epoch, leader_epoch, origin)
        if out.error_code == INVALID_PRODUCE_OFFSET or out.error_code == MESSAGE_TOO_LARGE:
            plan.is_repeated(self.producers, origin, out)   # a batch in the log keeps its result
            return 0
        if out.error_code != NONE or plan.stage(self.producers, data, origin, out):
            return 0
        if self.must_roll(size, now):
            self.owner.roll_for_append(self.roll_offset())
        plan.assign(data, size, origin, now)
        position = self.active.size_bytes
        file = self.active.file()
        file.timed = self.calm.threaded
        file.append_pointer(data, size, self.patient)
        self.calm.note_write(file.write_us, not self.patient)
        self.commit(position)
        if now - self.active.next_fresh_ms >= FRESH_EACH_MS:
            self.active.note_fresh(position, now)
        out.base_offset = plan.batches[0].base_offset
        out.last_offset = self.log_end_offset - 1
        out.log_end_offset = self.log_end_offset
        if plan.log_append_time and not as_they_are(origin):
            out.log_append_time_ms = now
        return 0

    # Kafka's rules: by size, by the records' time (by the clock if they have none), by index size,
    # and if the offset would be too far from the segment's base.
    cdef bint must_roll(self, Py_ssize_t size, int64_t now) noexcept:
        cdef int64_t newest = -1
        cdef int i
        for i in range(self.plan.count):
            newest = max(newest, self.plan.batches[i].max_timestamp)
        return self.is_full(size, self.plan.end_offset() - 1, newest, now)

    cdef bint is_full(
        self, Py_ssize_t size, int64_t last, int64_t newest, int64_t now
    ) noexcept:
        cdef LogSegment active = self.active
        cdef int64_t waited
        if last - active.base_offset > LARGEST_OFFSET_DELTA:
            return True
        if active.size_bytes == 0:
            return False
        if active.size_bytes + size > self.plan.segment_bytes:
            return True
        if active.first_entry + active.count >= self.segment_index_entries:
            return True
        if active.first_timestamp >= 0:
            waited = newest - active.first_timestamp
        else:
            waited = now - active.created_ms
        return waited > self.segment_ms

    # A new segment begins at the log end offset, unless given offsets leave too wide a gap.
    cdef int64_t roll_offset(self) noexcept:
        cdef int64_t last = self.plan.end_offset() - 1
        if last - self.log_end_offset > LARGEST_OFFSET_DELTA:
            return self.plan.batches[0].base_offset
        return self.log_end_offset

    cdef int commit(self, int64_t position) except -1:
        cdef LogSegment active = self.active
        cdef AppendPlan plan = self.plan
        cdef int64_t start = position
        cdef int i
        for i in range(plan.count):
            self.note_batch(active, &plan.batches[i], position, True)
            position += plan.batches[i].size_bytes
        remember(&self.hints, plan.batches[0].base_offset, active.base_offset, start)
        self.log_end_offset = active.next_offset
        self.producers.commit()
        self.note_end()
        if not self.dirty:
            self.dirty = True
            self.owner.note_dirty()
        return 0

    # -- append, from Python

    def append_buffer(self, buffer, int32_t leader_epoch, str origin="client"):
        """Appends ready batches; a read-only buffer is copied, since offsets are set in place."""
        cdef MemoryView view
        cdef AppendResult result
        cdef int kind = ORIGINS[origin]
        if memoryview(buffer).readonly:
            buffer = bytearray(buffer)
        view = view_of(buffer, True)
        self.append(view.data, view.size, leader_epoch, kind, &result)
        if result.error_code != NONE:
            raise self.owner.append_error(result.error_code, view.size, self.log_end_offset)
        return make_info(&result)

    cpdef int64_t append_record(self, value, key, timestamp, headers, int32_t leader_epoch,
                                expected_offset=None) except -1:
        """Appends one record; returns its offset."""
        cdef const uint8_t* key_data = NULL
        cdef Py_ssize_t key_size = -1
        cdef int64_t now, time_ms
        cdef AppendResult result
        if headers or not PyBytes_CheckExact(value) or not (key is None or PyBytes_CheckExact(key)):
            return self.append_records(((key, value, timestamp, headers),), 0, leader_epoch, -1,
                                       expected_offset).base_offset
        if key is not None:
            key_data = <const uint8_t*>PyBytes_AS_STRING(key)
            key_size = PyBytes_GET_SIZE(key)
        now = self.now_ms()
        time_ms = now if timestamp is None else milliseconds(timestamp)
        if leader_epoch < 0:
            leader_epoch = max(self.epochs.latest_epoch, 0)
        self.acquire()
        try:
            if expected_offset is not None:
                self.check_expected(expected_offset)
            self.build_and_append(key_data, key_size, <const uint8_t*>PyBytes_AS_STRING(value),
                                  PyBytes_GET_SIZE(value), time_ms, leader_epoch, now, &result)
        finally:
            self.release()
        if result.error_code != NONE:
            raise self.owner.append_error(result.error_code, PyBytes_GET_SIZE(value),
                                          self.log_end_offset)
        if self.on_append is not None:
            self.on_append()
        return result.base_offset

    cdef int build_and_append(self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
                              Py_ssize_t value_size, int64_t time_ms, int32_t leader_epoch,
                              int64_t now, AppendResult* out) except -1:
        cdef Py_ssize_t room = single_batch_room(key_size, value_size)
        cdef Py_ssize_t size
        cdef uint8_t* moved
        out.error_code = MESSAGE_TOO_LARGE
        if room - 64 > self.plan.max_message_bytes and not self.closed:
            return 0
        if room > self.scratch_room:
            moved = <uint8_t*>PyMem_RawRealloc(self.scratch, room)
            if moved == NULL:
                raise MemoryError
            self.scratch = moved
            self.scratch_room = room
        size = build_single(self.scratch, self.log_end_offset, leader_epoch, time_ms, key, key_size,
                            value, value_size)
        return self.append_locked(self.scratch, size, leader_epoch, ORIGIN_CLIENT, True, now, out)

    def append_records(self, records, int compression, int32_t leader_epoch,
                       int64_t base_offset=-1, expected_offset=None):
        """Builds batches of at most max.message.bytes, and appends them with one write."""
        cdef RecordBatchBuilder builder = self.spare
        cdef AppendResult result
        cdef bytearray earlier = bytearray()
        cdef int origin = ORIGIN_CLIENT if base_offset < 0 else ORIGIN_GIVEN_OFFSETS
        cdef Py_ssize_t size
        cdef uint8_t* data
        if leader_epoch < 0:
            leader_epoch = max(self.epochs.latest_epoch, 0)
        self.spare = None
        builder = RecordBatchBuilder() if builder is None else builder
        builder.compression = compression
        try:
            self.fill(builder, records, earlier, base_offset)
            data = builder.data
            size = builder.size_bytes
            if earlier:
                earlier += (<char*>builder.data)[:builder.size_bytes]
                data = <uint8_t*><char*>earlier
                size = len(earlier)
            self.acquire()
            try:
                if expected_offset is not None:
                    self.check_expected(expected_offset)
                self.append_locked(data, size, leader_epoch, origin, True, self.now_ms(), &result)
            finally:
                self.release()
        finally:
            builder.reset()
            self.spare = builder
        if result.error_code != NONE:
            raise self.owner.append_error(result.error_code, size, self.log_end_offset)
        if self.on_append is not None:
            self.on_append()
        return make_info(&result)

    def check_expected(self, int64_t offset):
        """Raises if the log does not end at this offset. The lock is held."""
        if offset != self.log_end_offset and not self.closed:
            raise self.owner.unexpected_offset(offset)

    def build(self, records, int compression):
        """The batches that append_records would append, from offset 0 on."""
        cdef RecordBatchBuilder builder = RecordBatchBuilder()
        cdef bytearray made = bytearray()
        builder.compression = compression
        self.fill(builder, records, made, 0)
        made += (<char*>builder.data)[:builder.size_bytes]
        return made

    def check_batches(self, bytearray batches not None):
        """Raises an error for invalid batches before an append. The lock is held."""
        cdef MemoryView view = view_of(batches, True)
        cdef int16_t code = self.plan.analyse(view.data, view.size, ORIGIN_CLIENT, True)
        if code == NONE:
            code = self.plan.check_limits(view.size)
        if code == NONE:
            code = self.plan.check_times(view.data, self.now_ms())
        if self.closed:
            code = KAFKA_STORAGE_ERROR
        if code != NONE:
            raise self.owner.append_error(code, view.size, self.log_end_offset)

    # Fills the builder with the last batch, sealed; earlier full batches go into `earlier`.
    cdef int fill(self, RecordBatchBuilder builder, records, bytearray earlier,
                  int64_t base_offset) except -1:
        cdef int64_t now = self.now_ms()
        cdef int64_t limit = self.plan.max_message_bytes
        cdef int64_t largest = -1
        cdef int64_t offset = max(base_offset, <int64_t>0)
        cdef Py_ssize_t size = builder.size_bytes
        if type(records) is list and builder.fill_values(<list>records, now, limit):
            builder.seal(offset, -1)
            return 0
        for record in records:
            builder.append_record(record, now)
            if builder.size_bytes > limit and builder.count > 1:
                builder.size_bytes = size           # the previous record is the last that fits
                builder.count -= 1
                builder.largest_timestamp = largest
                builder.seal(offset, -1)
                earlier += (<char*>builder.data)[:builder.size_bytes]
                offset += builder.count
                builder.reset()
                builder.append_record(record, now)
            size = builder.size_bytes
            largest = builder.largest_timestamp
        builder.seal(offset, -1)
        return 0


cdef class Appender:
    """Appends single records to a log. ``Log`` inherits it."""
    def __init__(self, LogCore core not None):
        self.appends = core

    def append(self, value, key=None, timestamp=None, headers=(), *, expected_offset=None):
        """Append one record and return its offset. ``timestamp`` is in ms since 1970 (default:
        now). ``headers`` is a mapping or pairs: names and values (bytes or None).

        With ``expected_offset`` the record is appended only if the log ends at that offset, even if
        others write concurrently. Otherwise UnexpectedOffsetError has the log's actual end.

        Raises RecordTooLargeError, DiskFullError, LogClosedError, ReadOnlyLogError or another
        LogError. The log can still be used. Example: ``log.append(b"paid", headers={"a": b"7f"})``.
        """
        cdef LogCore core = self.appends
        cdef int64_t offset
        if core is None:
            raise TypeError(f"{type(self).__name__}.__init__ has to call Log.__init__")
        try:
            offset = core.append_record(
                value, key, timestamp, headers, NEWEST_EPOCH, expected_offset)
        except OSError as error:
            raise core.owner.append_failed(error) from error
        if core.shows_durable:
            self.sync_until(offset + 1)
        return offset

    def sync_until(self, offset):
        """Wait until all records below ``offset`` are on disk."""
        raise NotImplementedError("the log that can sync has this")
