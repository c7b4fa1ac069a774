"""Copying what another broker leads: one connection, the loop of fetching in C.

An answer's batches are appended from the buffer they were received in, and the next fetch, which
tells the leader how far this broker has come, goes out at once. Whatever is not plain copying (an
epoch that diverges, an error, a full disk) is handed to the owner, and the partition is held until
the owner releases it. It opens no connection; what a fetch says is replica_session.pyx's.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from kstore._fast.record.batch cimport BATCH_LENGTH_AT, BATCH_PREFIX_SIZE
from kstore._fast.record.buffer cimport load_int32, load_int64
from kstore._fast.error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID,
    INVALID_FETCH_SESSION_EPOCH, NONE)
from kstore._fast.log.append_plan cimport ORIGIN_REPLICA, AppendResult
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.broker.sending cimport SEND_BLOCKED, SEND_DONE, send_answers, unsent
from kstore._fast.protocol.wire cimport (
    AnswerBuffer, WireBytes, begin_reading, read_bytes, read_int16, read_int32, read_int64,
    read_raw, read_some, read_unsigned, skip_tags)

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF     # what a leader answers is as large as was asked for

cdef enum:
    READ_BYTES = 64 * 1024
    KEPT_BYTES = 1024 * 1024                # a larger buffer is given back when it was not needed
    MAX_FRAME_BYTES = 1 << 30
    TURN_BYTES = 1024 * 1024                # are appended before others of the loop have their turn
    APPEND_BYTES = 8 * 1024                 # what an append costs beside its bytes, in bytes
    DIVERGING_EPOCH_TAG = 0


# How many of the bytes are whole batches; a partial one at the end is not for this time.
cdef Py_ssize_t whole_batches(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef int64_t length
    while size - at >= BATCH_PREFIX_SIZE:
        length = load_int32(data + at + BATCH_LENGTH_AT)
        if length <= 0 or BATCH_PREFIX_SIZE + length > size - at:
            # A length that no batch has is for the append to refuse.
            return size if length <= 0 else at
        at += BATCH_PREFIX_SIZE + length
    return at


cdef int read_part(WireReader* r, FetchedPart* part) noexcept:
    """One partition of an answer; r.bad afterwards: it is cut short."""
    cdef Py_ssize_t i, count
    cdef WireBytes records
    part.index = read_int32(r)
    part.error = read_int16(r)
    part.high_watermark = read_int64(r)
    read_int64(r)                                   # last stable offset
    part.log_start_offset = read_int64(r)
    count = <int32_t>(read_unsigned(r) - 1)         # aborted transactions
    for i in range(count):
        read_raw(r, 16)
        skip_tags(r, True)
        if r.bad:
            return 0
    read_int32(r)                                   # preferred read replica
    records = read_bytes(r, True)
    part.records = records.data
    part.records_size = max(records.size, <Py_ssize_t>0)
    part.diverging_epoch = -1
    part.diverging_end_offset = -1
    read_part_tags(r, part)
    return 0


cdef int read_part_tags(WireReader* r, FetchedPart* part) noexcept:
    cdef int32_t i
    cdef int32_t count = <int32_t>read_unsigned(r)
    cdef int64_t tag
    cdef WireBytes field
    for i in range(count):
        tag = read_unsigned(r)
        field = read_raw(r, <Py_ssize_t>read_unsigned(r))
        if r.bad:
            return 0
        if tag == DIVERGING_EPOCH_TAG and field.size >= 12:
            part.diverging_epoch = load_int32(field.data)
            part.diverging_end_offset = load_int64(field.data + 4)
    return 0


cdef class ReplicaFetcher(ReplicaSession):
    """The protocol of the connection to one leader, for uvloop's buffered reads."""

    def __cinit__(self):
        self.data = <uint8_t*>malloc(READ_BYTES)
        if self.data == NULL:
            raise MemoryError
        self.capacity = READ_BYTES
        self.fd = -1

    def __dealloc__(self):
        free(self.data)

    def __init__(self, owner, call_soon, *, int leader_id, int node_id, int64_t broker_epoch):
        super().__init__(leader_id=leader_id, node_id=node_id, broker_epoch=broker_epoch)
        self.owner = owner
        self.call_soon = call_soon

    # ---- what the transport calls ----

    def connection_made(self, transport):
        """The leader is connected: fetch all that is to be copied."""
        self.transport = transport
        if transport.get_extra_info("sslcontext") is None:
            self.fd = transport.get_extra_info("socket").fileno()
        self.start = self.end = 0
        self.in_frame = False
        self.sent = self.answered = 0
        self.begin_session()
        self.fetch_soon()

    def get_buffer(self, sizehint):
        """Where the next bytes go: this object shows the right memory; TLS wants a length."""
        if self.end == self.capacity:
            self.grow(self.capacity + READ_BYTES)
        return self if self.fd >= 0 else memoryview(self)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data + self.end, self.capacity - self.end, 0, flags)

    def buffer_updated(self, Py_ssize_t size):
        """Bytes have come: work through every whole answer."""
        self.end += size
        try:
            self.take_frames()
        except Exception as problem:
            self.fail(problem)

    def eof_received(self):
        """The leader sends no more."""
        return False

    def pause_writing(self):
        """Never more than two fetches are under way."""

    def resume_writing(self):
        """See `pause_writing`."""

    def connection_lost(self, problem):
        """The connection is gone; the owner makes another one."""
        if self.transport is not None:
            self.transport = None
            self.fd = -1
            self.start = self.end = 0
            self.in_frame = False
            self.owner.lost(self, problem)

    def close(self):
        """End the connection."""
        if self.transport is not None:
            self.fd = -1
            self.transport.abort()

    def fail(self, problem):
        """What came is no answer, or can't be worked with: the connection ends."""
        self.owner.report(f"the connection to leader {self.leader_id} ends: {problem}")
        self.close()

    @property
    def connected(self):
        """Whether there is a connection."""
        return self.transport is not None

    @property
    def in_flight(self):
        """How many fetches are not answered yet."""
        return self.sent - self.answered

    # ---- answers ----

    cdef int take_frames(self) except -1:
        cdef int64_t size
        while self.transport is not None:
            if not self.in_frame:
                if self.end - self.start < 4:
                    break
                size = load_int32(self.data + self.start)
                if size < 0 or size > MAX_FRAME_BYTES:
                    raise ValueError(f"an answer of {size} bytes")
                if self.end - self.start < 4 + size:
                    return self.reserve(<Py_ssize_t>(4 + size))
                self.frame_end = self.start + 4 + size
                self.begin_frame()
            if not self.go_through():
                return 0
            self.start = self.frame_end
            self.in_frame = False
            self.end_frame()
        return self.tidy_buffer()

    cdef int begin_frame(self) except -1:
        """The answer's head: whether the session holds, and how many topics follow."""
        cdef WireReader r
        cdef int16_t error
        cdef int32_t session_id
        begin_reading(&r, self.data + self.start + 4, self.frame_end - self.start - 4, NO_LIMIT)
        if read_int32(&r) != self.answered or self.answered == self.sent:
            raise ValueError("an answer to nothing that was asked")
        skip_tags(&r, True)
        read_int32(&r)                              # throttle time
        error = read_int16(&r)
        session_id = read_int32(&r)
        self.topics_left = read_some(&r, True)
        if r.bad:
            raise ValueError("an answer that is cut short")
        self.answered += 1
        self.bytes_in += self.frame_end - self.start
        self.parts_left = -1
        self.topic = {}
        self.at = r.p - self.data
        self.in_frame = True
        if error == NONE:
            if session_id != self.session_id:
                self.session_id = session_id
                self.session_epoch = 0
            self.no_session = session_id == 0       # the leader has no room for one
            return 0
        self.topics_left = 0
        if error in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
                     FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID):
            return self.begin_session()
        raise ValueError(f"it answers a fetch with error {error}")

    cdef bint go_through(self) except? True:
        """The partitions of the answer; False where the rest waits for the next turn of
        the loop.
        """
        cdef WireReader r
        cdef FetchedPart part
        cdef WireBytes topic_id
        cdef int64_t spent = 0
        begin_reading(&r, self.data, 0, NO_LIMIT)
        while self.topics_left > 0:
            r.p = self.data + self.at
            r.end = self.data + self.frame_end
            if self.parts_left < 0:
                topic_id = read_raw(&r, 16)
                self.parts_left = read_some(&r, True)
                if not r.bad:
                    self.topic = self.topics.get((<const char*>topic_id.data)[:16], {})
            elif self.parts_left == 0:
                skip_tags(&r, True)
                self.parts_left = -1
                self.topics_left -= 1
            else:
                read_part(&r, &part)
                if not r.bad:
                    self.at = r.p - self.data
                    self.parts_left -= 1
                    self.take_part(self.topic.get(part.index), &part)
                    if self.transport is None:
                        return False
                    spent += part.records_size + APPEND_BYTES
                    if spent > TURN_BYTES:
                        self.call_soon(self.go_on)
                        return False
                    continue
            if r.bad:
                raise ValueError("an answer that is cut short")
            self.at = r.p - self.data
        return True

    def go_on(self):
        """Go on with an answer after the others of the loop had their turn."""
        if self.transport is not None and self.in_frame:
            try:
                self.take_frames()
            except Exception as problem:
                self.fail(problem)

    cdef int take_part(self, Followed followed, FetchedPart* part) except -1:
        cdef LogCore core
        cdef int64_t high_watermark
        cdef bint late
        if followed is None or followed.held or not followed.asked \
                or self.answered <= followed.first_request:
            return 0
        core = followed.partition.core
        if core is None:
            self.hold(followed)
            return 0
        if part.error != NONE:
            self.hold(followed)
            self.owner.refused(self, followed, part.error)
            return 0
        if core.log_end_offset != followed.asked_offset:
            return self.note_changed(followed)      # it is the answer to an earlier question
        # A fetch that was under way beside the one whose records are here already asked for them,
        # too; what else it tells is news.
        late = self.answered <= followed.offset_request
        if part.diverging_epoch >= 0 and not late:
            self.hold(followed)
            self.owner.diverged(self, followed, part.diverging_epoch, part.diverging_end_offset)
            return 0
        if part.records_size > 0 and not late and not self.append_records(followed, part):
            return 0
        followed.leader_high_watermark = part.high_watermark
        high_watermark = min(part.high_watermark, core.log_end_offset)
        if high_watermark > core.high_watermark:
            (<object>followed.partition).take_high_watermark(high_watermark)
        if part.log_start_offset > core.log_start_offset:
            self.owner.start_moved(self, followed, part.log_start_offset)
        return 0

    cdef bint append_records(self, Followed followed, FetchedPart* part) except? True:
        """Append what has come; False where it could not be."""
        cdef AppendResult result
        cdef LogCore core = followed.partition.core
        cdef Py_ssize_t size = whole_batches(part.records, part.records_size)
        if size == 0:
            return True
        try:
            core.append(
                <uint8_t*>part.records, size, followed.leader_epoch, ORIGIN_REPLICA, &result)
        except OSError as problem:
            self.hold(followed)
            self.owner.failed(self, followed, problem)
            return False
        if result.error_code != NONE:
            self.hold(followed)
            self.owner.refused_append(self, followed, result.error_code)
            return False
        self.note_changed(followed)
        if followed.throttled:
            self.throttled_bytes += size
        return True

    cdef int end_frame(self) except -1:
        """All of an answer is appended: tell the leader by the next fetch."""
        cdef int64_t throttled = self.throttled_bytes
        self.topic = {}
        if throttled:
            self.throttled_bytes = 0
            self.owner.count_throttled(self, throttled)
        if self.sent == self.answered:
            self.send_fetch()
        return 0

    # ---- fetches ----

    cdef int fetch_soon(self) except -1:
        """Fetch at the end of this turn of the loop, though a fetch may be under way."""
        if not self.scheduled and self.transport is not None:
            self.scheduled = True
            self.call_soon(self.fetch_now)
        return 0

    def fetch_now(self):
        """Fetch, if the leader has to hear of a partition that it was not asked for, or none is
        under way.
        """
        self.scheduled = False
        if self.transport is None or self.in_frame or self.waits_for_disk:
            return                                  # it comes with the next fetch, which is near
        if self.sent == self.answered:
            self.send_fetch()
        elif self.sent - self.answered == 1 and self.urgent and self.session_id:
            # The leader answers the fetch that waits as soon as it has the next of its session.
            self.send_fetch()

    def on_disk(self):
        """What was copied is on the disk: the leader may hear of it."""
        self.waits_for_disk = False
        self.fetch_now()

    cdef bint must_wait_for_disk(self) except? True:
        cdef Followed followed
        cdef LogCore core
        cdef list behind = []
        for followed in self.changed:
            core = followed.partition.core
            if not followed.held and core is not None \
                    and core.durable_offset < core.log_end_offset:
                behind.append((followed.partition.log, core.log_end_offset))
        if behind:
            self.waits_for_disk = True
            self.owner.wait_for_disk(self, behind)
        return self.waits_for_disk

    cdef int send_fetch(self) except -1:
        if self.active == 0 or self.waits_for_disk:
            return 0
        if self.durable and self.must_wait_for_disk():
            return 0
        self.write_next()
        return self.put_on_wire()

    cdef int put_on_wire(self) except -1:
        cdef AnswerBuffer out = self.out
        cdef int outcome = SEND_BLOCKED
        if self.fd >= 0 and self.transport.get_write_buffer_size() == 0:
            outcome = send_answers(self.fd, out, unsent(out))
        if outcome == SEND_BLOCKED:
            self.transport.write(bytes(out))
        elif outcome != SEND_DONE:
            self.close()
        out.clear()
        return 0

    # ---- the buffer ----

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        """Room for so many bytes from the beginning of what is not worked through."""
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        if capacity > self.capacity:
            self.grow(capacity)
        return 0

    cdef int grow(self, Py_ssize_t capacity) except -1:
        cdef uint8_t* data = <uint8_t*>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError(f"no memory for an answer of {capacity} bytes")
        self.data = data
        self.capacity = capacity
        return 0

    cdef int tidy_buffer(self) except -1:
        """Bytes of the next answer go to the beginning; a large buffer that a small answer came in
        is given back.
        """
        cdef uint8_t* data
        cdef Py_ssize_t last = self.start
        self.reserve(0)
        if self.capacity > KEPT_BYTES and last < self.capacity // 8 and self.end < READ_BYTES:
            data = <uint8_t*>realloc(self.data, READ_BYTES)
            if data != NULL:
                self.data = data
                self.capacity = READ_BYTES
        return 0
