"""Copies partitions that another broker leads: one connection, and the fetch loop in C.

An answer's batches are appended from the buffer that received them, and the next fetch, which
acknowledges them to the leader, is sent at once. Everything else (a diverging epoch, an error, a
full disk) goes to the owner, and the partition is held until the owner releases it. This module
opens no connection; replica_session.pyx writes the fetches.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int16_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kstore._fast.record.buffer cimport load_int32
from kstore._fast.error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID,
    INVALID_FETCH_SESSION_EPOCH, NONE, NOT_LEADER_OR_FOLLOWER)
from kstore._fast.log.append_plan cimport ORIGIN_REPLICA, AppendResult
from kstore._fast.log.append_queue cimport AppendQueue
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.sending cimport SEND_BLOCKED, SEND_DONE, send_answers, unsent
from kstore._fast.replication.fetched_part cimport read_part, whole_batches
from kstore._fast.protocol.wire cimport (
    AnswerBuffer, WireBytes, WireReader, begin_reading, read_int16, read_int32, read_raw, read_some,
    skip_tags)

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF     # a leader's answers are as large as requested

cdef enum:
    READ_BYTES = 64 * 1024
    SLACK_BYTES = 4 * 1024                  # a read that fills the buffer is followed by another
    KEPT_BYTES = 1024 * 1024                # a larger buffer is freed when it was not needed
    MAX_FRAME_BYTES = 1 << 30
    TURN_BYTES = 1024 * 1024                # are appended before the loop's other work
    APPEND_BYTES = 8 * 1024                 # the fixed cost of an append, in bytes
    # Batches of several producers that arrived together are one append here. An append by a thread
    # removes the partition from the session, and costs two more fetches.
    DIRECT_BYTES = 256 * 1024


cdef inline int count_copied(Partition partition, int64_t size) noexcept:
    partition.entry.counts.copied(partition.events.counts, size)
    return 0


cdef class ReplicaJob(AppendJob):
    """The data of one partition, appended by a thread."""

    cdef int ended(self) except -1:
        return self.fetcher.end_append(self)


cdef class ReplicaFetcher(ReplicaSession):
    """The protocol of the connection to one leader, for uvloop's buffered reads."""

    def __cinit__(self):
        self.data = <uint8_t*>malloc(READ_BYTES)
        if self.data == NULL:
            raise MemoryError
        self.capacity = READ_BYTES
        self.fd = -1

    def __dealloc__(self):
        free(self.data)                     # no thread has a part of it: threads keep a reference

    def __init__(self, owner, call_soon, *, int leader_id, int node_id, int64_t broker_epoch):
        super().__init__(leader_id=leader_id, node_id=node_id, broker_epoch=broker_epoch)
        self.owner = owner
        self.call_soon = call_soon

    # ---- what the transport calls ----

    def connection_made(self, transport):
        """The leader is connected: fetch all partitions to copy."""
        self.transport = transport
        if transport.get_extra_info("sslcontext") is None:
            self.fd = transport.get_extra_info("socket").fileno()
        self.start = self.end = 0
        self.in_frame = False
        self.sent = self.answered = 0
        self.begin_session()
        self.fetch_soon()

    def get_buffer(self, sizehint):
        """The buffer for the next bytes: this object; TLS needs one with a length."""
        if self.end == self.capacity:
            self.grow(self.capacity + READ_BYTES)
        return self if self.fd >= 0 else memoryview(self)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data + self.end, self.capacity - self.end, 0, flags)

    def buffer_updated(self, Py_ssize_t size):
        """Bytes have arrived: handle every complete answer."""
        self.end += size
        try:
            self.take_frames()
        except Exception as problem:
            self.fail(problem)

    def eof_received(self):
        """The leader sends no more."""
        return False

    def pause_writing(self):
        """Never more than two fetches are in flight."""

    def resume_writing(self):
        """See `pause_writing`."""

    def connection_lost(self, problem):
        """The connection is gone; the owner creates another one."""
        if self.transport is not None:
            self.transport = None
            self.fd = -1
            self.start = self.end = 0
            self.in_frame = False
            if self.is_pinned():
                self.grow(READ_BYTES)
            self.owner.lost(self, problem)

    def close(self):
        """End the connection."""
        if self.transport is not None:
            self.fd = -1
            self.transport.abort()

    def fail(self, problem):
        """The data is not a usable answer: the connection ends."""
        self.owner.report(f"the connection to leader {self.leader_id} ends: {problem}")
        self.close()

    @property
    def descriptor(self):
        """The connection's socket; -1 without one, and with TLS."""
        return self.fd

    @property
    def connected(self):
        """Whether there is a connection."""
        return self.transport is not None

    @property
    def in_flight(self):
        """The number of fetches without an answer."""
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
                    return self.reserve(<Py_ssize_t>(4 + size) + SLACK_BYTES)
                self.frame_end = self.start + 4 + size
                self.begin_frame()
            if not self.go_through():
                return 0
            self.start = self.frame_end
            self.in_frame = False
            self.end_frame()
        return self.tidy_buffer()

    cdef int begin_frame(self) except -1:
        """The answer's header: whether the session is valid, and the number of topics."""
        cdef WireReader r
        cdef int16_t error
        cdef int32_t session_id
        begin_reading(&r, self.data + self.start + 4, self.frame_end - self.start - 4, NO_LIMIT)
        if read_int32(&r) != self.answered or self.answered == self.sent:
            raise ValueError("an answer without a request")
        skip_tags(&r, True)
        read_int32(&r)                              # throttle time
        error = read_int16(&r)
        session_id = read_int32(&r)
        self.topics_left = read_some(&r, True)
        if r.bad:
            raise ValueError("a truncated answer")
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
            self.no_session = session_id == 0       # the leader has no slot for one
            return 0
        self.topics_left = 0
        if error in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
                     FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID):
            return self.begin_session()
        raise ValueError(f"it answers a fetch with error {error}")

    cdef bint go_through(self) except? True:
        """The partitions of the answer; False if the rest waits for the next turn of the
        loop.
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
                raise ValueError("a truncated answer")
            self.at = r.p - self.data
        return True

    def go_on(self):
        """Continue with an answer after other work of the loop had its turn."""
        if self.transport is not None and self.in_frame:
            try:
                self.take_frames()
            except Exception as problem:
                self.fail(problem)

    cdef int take_part(self, Followed followed, FetchedPart* part) except -1:
        cdef LogCore core
        cdef bint late
        if followed is None or followed.held or followed.appending or not followed.asked \
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
            return self.note_changed(followed)      # it answers an earlier fetch
        # A fetch that was in flight together with the one whose records are already here requested
        # the same records; the rest of its answer is new.
        late = self.answered <= followed.offset_request
        if part.diverging_epoch >= 0 and not late:
            self.hold(followed)
            self.owner.diverged(self, followed, part.diverging_epoch, part.diverging_end_offset)
            return 0
        if part.records_size > 0 and not late and not self.append_records(followed, part):
            return 0
        return 0 if followed.appending else self.note_part(followed, part)

    cdef int note_part(self, Followed followed, const FetchedPart* part) except -1:
        """Store the other values that the leader sent with the records."""
        cdef LogCore core = followed.partition.core
        cdef int64_t high_watermark = min(part.high_watermark, core.log_end_offset)
        followed.leader_high_watermark = part.high_watermark
        if high_watermark > core.high_watermark:
            (<object>followed.partition).take_high_watermark(high_watermark)
        if part.log_start_offset > core.log_start_offset:
            self.owner.start_moved(self, followed, part.log_start_offset)
        return 0

    cdef bint append_records(self, Followed followed, FetchedPart* part) except? True:
        """Append the data; False if that failed."""
        cdef AppendResult result
        cdef LogCore core = followed.partition.core
        cdef bint later
        cdef Py_ssize_t size = whole_batches(
            part.records, part.records_size, followed.leader_epoch, &later)
        if size == 0 and later:                     # of an epoch that this broker does not know yet
            self.hold(followed)
            self.owner.sent_later_epoch(self, followed)
            return False
        if size == 0:
            return True
        if not core.may_append_now(part.records, size, True, DIRECT_BYTES):
            self.append_later(followed, part, size)
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
        count_copied(followed.partition, size)
        if followed.throttled:
            self.throttled_bytes += size
        return True

    cdef int append_later(
        self, Followed followed, FetchedPart* part, Py_ssize_t size
    ) except -1:
        """Have a thread append the data. The partition is fetched again afterwards; the others of
        its leader continue.
        """
        cdef ReplicaJob job = ReplicaJob.__new__(ReplicaJob)
        if not self.is_pinned():
            self.pinned = FrameMemory.__new__(FrameMemory)
            self.pinned.data = self.data
        job.core = followed.partition.core
        job.data = <uint8_t*>part.records
        job.size = size
        job.keeps = self.pinned
        job.leader_epoch = followed.leader_epoch
        job.origin = ORIGIN_REPLICA
        job.fetcher = self
        job.followed = followed
        job.part = part[0]
        (<AppendQueue>job.core.appends).submit(job)
        self.pinned.users += 1
        followed.appending = True
        self.hold(followed)
        return 0

    cdef int end_append(self, ReplicaJob job) except -1:
        """A thread has appended the data of a partition, or failed."""
        cdef Followed followed = job.followed
        (<FrameMemory>job.keeps).users -= 1
        followed.appending = False
        if followed.partition.online:               # this broker leads it meanwhile
            return followed.partition.end_append(job)
        if not self.has(followed):
            return 0
        if followed.partition.core is not job.core \
                or job.result.error_code == NOT_LEADER_OR_FOLLOWER:
            self.release(followed)                  # the data was for an earlier log
        elif job.problem is not None:
            self.owner.failed(self, followed, job.problem)
        elif job.result.error_code != NONE:
            self.owner.refused_append(self, followed, job.result.error_code)
        else:
            self.note_part(followed, &job.part)
            self.release(followed)
            count_copied(followed.partition, job.size)
            if followed.throttled:
                self.owner.count_throttled(self, job.size)      # the owner may hold it again
        return 0

    cdef int end_frame(self) except -1:
        """The whole answer is appended: acknowledge it with the next fetch."""
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
        """Fetch at the end of this turn of the loop, even if a fetch is in flight."""
        if not self.scheduled and self.transport is not None:
            self.scheduled = True
            self.call_soon(self.fetch_now)
        return 0

    def fetch_now(self):
        """Fetch, if a partition must be added to the leader's session, or no fetch is in
        flight.
        """
        self.scheduled = False
        if self.transport is None or self.in_frame or self.waits_for_disk:
            return                                  # the next fetch, which comes soon, has it
        if self.sent == self.answered:
            self.send_fetch()
        elif self.sent - self.answered == 1 and self.urgent and self.session_id:
            # The leader answers a waiting fetch when it gets the next fetch of its session.
            self.send_fetch()

    def on_disk(self):
        """The copied data is on disk: acknowledge it to the leader."""
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

    cdef bint is_pinned(self) noexcept:
        """Whether threads append from the buffer, which must not move then."""
        if self.pinned is not None and self.pinned.users == 0:
            self.pinned = None
        return self.pinned is not None

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        """Room for so many bytes from the first byte that is not handled."""
        if self.start and self.is_pinned():
            return self.grow(max(capacity, self.end - self.start + READ_BYTES))
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        if capacity > self.capacity:
            self.grow(capacity)
        return 0

    cdef int grow(self, Py_ssize_t capacity) except -1:
        """A larger buffer. Threads keep the one that they append from; a frame that is being
        handled stays in the old buffer.
        """
        cdef Py_ssize_t first = 0 if self.in_frame else self.start
        cdef uint8_t* data
        if self.is_pinned():
            data = <uint8_t*>malloc(capacity)
        else:
            first = 0
            data = <uint8_t*>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError(f"no memory for an answer of {capacity} bytes")
        if self.pinned is not None:
            memcpy(data, self.data + first, self.end - first)
            self.pinned.owns = True
            self.pinned = None
            self.start -= first
            self.end -= first
        self.data = data
        self.capacity = capacity
        return 0

    cdef int tidy_buffer(self) except -1:
        """Move bytes of the next answer to the beginning; free a large buffer after a small
        answer.
        """
        cdef uint8_t* data
        cdef Py_ssize_t last = self.start
        self.reserve(0)
        if self.capacity > KEPT_BYTES and last < self.capacity // 8 and self.end < READ_BYTES \
                and not self.is_pinned():
            data = <uint8_t*>realloc(self.data, READ_BYTES)
            if data != NULL:
                self.data = data
                self.capacity = READ_BYTES
        return 0
