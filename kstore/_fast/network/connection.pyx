"""One client connection on the loop: frames in, answers out, in the order of the requests.

All complete frames of a read are handled before it returns, and one send has all their answers
(outbox.pyx). request_paths.pyx chooses the path that answers a request. This module does not
interpret requests.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kstore._fast.record.buffer cimport load_int32
from kstore import other_protocols
from kstore._fast.log.clock cimport now_ms, now_us
from kstore._fast.network.data_plane cimport (
    READ_BYTES, SLICE_OVER, ApiEntry, DataPlane, api_place)
from kstore._fast.network.loop_watch cimport LoopWatch
from kstore._fast.broker.produce_later cimport TURN_BYTES, ProduceAppends
from kstore._fast.broker.sending cimport SEND_LOST
from kstore._fast.broker.slots cimport Slot
from kstore._fast.network.produce_runs cimport ProduceRuns
from kstore._fast.network.request_paths cimport API_VERSIONS, NEXT_TURN, OVER_QUOTA
from kstore._fast.protocol.wire cimport (
    AnswerBuffer, begin_reading, put_raw, read_int16, read_int32, read_string, room, skip_tags)

cdef enum:
    UNSUPPORTED = -1                        # dispatch gets it for a newer ApiVersions
    FLUSHED_BYTES = 512 * 1024              # answers of one read are sent before they exceed it
    SLACK_BYTES = 4 * 1024                  # there is always room for the next read
    MIN_OWN_BYTES = 64 * 1024               # and of a client that is not authenticated
    EAGER_BYTES = 2 * 1024 * 1024           # a declared size up to this is allocated at once
    RESTING_MS = 1000
    MAX_HELD_BYTES = 4 * 1024 * 1024        # finished answers after a parked one
    ABANDONED_MS = 30 * 1000                # a closed one whose peer accepts nothing for so long


cdef class Connection(RequestPaths):
    """One client connection, as uvloop's buffered protocol by duck typing."""

    def __cinit__(self):
        self.own = NULL

    def __dealloc__(self):
        free(self.own)

    def __init__(self, DataPlane plane not None, listener):
        self.plane = plane
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.max_frame_bytes = plane.max_request_bytes
        if plane.runs is None:
            ProduceRuns().serve(plane)

    # ---- what the transport calls ----

    def connection_made(self, transport):
        """The peer is connected: ask the server whether it accepts it."""
        self.transport = transport
        peer = transport.get_extra_info("peername") or ("unix", 0)
        local = transport.get_extra_info("sockname") or ("unix", 0)
        self.plane.connections_made += 1
        self.connection_id = self.plane.connections_made
        self.client_host = str(peer[0])
        self.peer = f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{self.connection_id}"
        self.last_active_ms = now_ms()
        self.plane.connections[self] = None
        if transport.get_extra_info("sslcontext") is None:
            self.fd = transport.get_extra_info("socket").fileno()
        reason = self.plane.server.admit(self)
        if reason is not None:
            self.fail(reason)

    def get_buffer(self, sizehint):
        """The buffer for the next bytes: this object; TLS needs one with a length."""
        return self if self.fd >= 0 else memoryview(self)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef Py_ssize_t most = max(self.plane.share() - self.taken_bytes, SLACK_BYTES)
        if self.own == NULL:
            PyBuffer_FillInfo(
                view, self, self.plane.read_buffer, min(self.plane.read_capacity, most), 0, flags)
        else:
            PyBuffer_FillInfo(
                view, self, self.own + self.own_end, min(self.own_capacity - self.own_end, most),
                0, flags)

    def buffer_updated(self, Py_ssize_t size):
        """Bytes have arrived: handle all complete frames, and answer in one send."""
        cdef uint8_t* data = self.plane.read_buffer
        self.last_active_ms = now_ms()
        self.taken_bytes += size
        self.plane.bytes_read += size
        self.fresh = True
        if self.own != NULL:
            self.own_end += size
            data = self.own
            size = self.own_end
        self.handle_read(data, size)

    def eof_received(self):
        """The peer sends no more: close, because no Kafka client half-closes."""
        return False

    def pause_writing(self):
        """The transport has enough unsent bytes: handle no further request."""
        self.write_paused = self.transport_full = True
        self.regulate()

    def resume_writing(self):
        """The transport has sent most of its bytes."""
        self.transport_full = False
        if self.unsent is None:
            self.write_paused = False
            self.resume()
        elif self.fd < 0:
            self.feed()

    def begin_turn(self):
        """The loop has begun another turn: reset this connection's share."""
        self.noted = self.hungry = False
        self.taken_bytes = self.given_bytes = self.spent_us = 0
        if self.fd < 0 and self.unsent is not None:
            self.feed()
        if self.muted & NEXT_TURN:
            self.unmute(NEXT_TURN)

    def connection_lost(self, problem):
        """The connection is gone: send no more answers."""
        cdef Slot slot
        self.closed = True
        self.forget_unsent()
        self.fd = -1
        self.plane.connections.pop(self, None)
        slots, self.slots = self.slots, []
        self.lose_times(slots)
        for slot in slots:
            slot.cancel()
        self.give_back()
        self.transport = None
        self.plane.server.lost(self)

    # ---- what the server calls ----

    def rest(self, int64_t idle_ms):
        """Close if it has been idle for that long (-1: never); an inactive connection frees
        its memory.
        """
        cdef int64_t idle = now_ms() - self.last_active_ms
        if self.unsent is not None:
            stuck = now_ms() - self.progress_ms
            if (self.closed and stuck > ABANDONED_MS) or 0 <= idle_ms < stuck:
                self.lose(SEND_LOST)
            return
        if self.slots:
            return
        if idle_ms >= 0 and idle > idle_ms:
            self.close()
        elif self.own != NULL and self.own_end == 0 and idle > RESTING_MS:
            self.give_back()

    def resume(self):
        """Continue with requests that were read but not handled, then with reading."""
        if self.closed or not self.may_handle():
            return
        if self.own != NULL and self.own_end > 0:
            self.handle_read(self.own, self.own_end)
        else:
            self.regulate()

    def mute(self, int reason=OVER_QUOTA):
        """Handle no request until `unmute` for the same reason; later requests wait."""
        self.muted |= reason

    def unmute(self, int reason=OVER_QUOTA):
        """Continue with the requests since `mute`."""
        self.muted &= ~reason
        self.resume()

    def admitted(self):
        """Handle the first remaining request again, then the requests after it."""
        self.admission = False
        self.pinned = None
        self.resume()

    def tls_object(self):
        """The TLS library's view of the connection; None in plain text."""
        return self.transport.get_extra_info("ssl_object")

    def send_frame(self, bytes frame):
        """Send a complete answer, after the answers to earlier requests."""
        cdef AnswerBuffer out
        cdef Py_ssize_t size = len(frame)
        if self.closed:
            return
        out = self.buffer_for_answer()
        room(out, size)
        put_raw(out, <const uint8_t*><const char*>frame, size)
        self.queue_answer(out)
        if not self.plane.busy:
            self.flush()

    cdef int go_on(self) except -1:
        if self.read_paused:
            self.resume()
        return 0

    @property
    def parked(self):
        """How many requests of this connection wait for their answer."""
        return len(self.slots)

    # ---- frames ----

    cdef int handle_read(self, uint8_t* data, Py_ssize_t size) except -1:
        """Handle the bytes that were read, and measure the time."""
        cdef LoopWatch watch = self.plane.watch
        cdef bint outer = watch.enter(now_us())
        if self.fresh:
            self.fresh = False
            self.read_us = watch.last_us
        try:
            return self.handle_all(data, size)
        finally:
            if outer:
                watch.leave()

    cdef int handle_all(self, uint8_t* data, Py_ssize_t size) except -1:
        """Handle the bytes that were read, keep the rest, send the answers."""
        cdef Py_ssize_t used
        if self.closed:
            return 0
        try:
            used = self.handle_frames(data, size)
        except Exception as problem:
            self.plane.out.clear()          # it may contain a partly written answer
            self.plane.server.failed(self, problem)
            self.close()
            return 0
        if self.closed:
            self.plane.out.clear()
            return 0
        self.keep_rest(data + used, size - used, used > 0)
        if self.appends is not None and (<ProduceAppends>self.appends).fresh:
            self.pinned = (<ProduceAppends>self.appends).submit(self.own, data + used)
        self.flush()
        self.end_read()
        self.regulate()
        return 0

    cdef Py_ssize_t handle_frames(self, uint8_t* data, Py_ssize_t size) except -1:
        """Handle the complete frames at data while more answers are allowed; returns the
        bytes used.
        """
        cdef Py_ssize_t run, used = 0
        cdef LoopWatch watch = self.plane.watch
        cdef int64_t frame, began_us = watch.last_us - self.spent_us
        cdef bint runs = (
            self.authentication is None and self.quotas is None and self.fate is None
            and self.plane.faults is None and self.appends is None and self.verdicts is None)
        self.plane.busy = True
        self.plane.produce.unpack_budget = TURN_BYTES
        try:
            while size - used >= 4:
                frame = load_int32(data + used)
                if frame < 0 or frame > self.max_frame_bytes:
                    self.refuse_size(frame)
                    break
                if size - used - 4 < frame or not self.may_handle():
                    break
                if self.plane.puts_off(self, data + used + 4, frame):
                    self.muted |= SLICE_OVER
                    break
                run = 0
                if runs and size - used - 4 > frame:
                    run = (<ProduceRuns>self.plane.runs).take(self, data + used, size - used)
                    runs = run > 0
                if run == 0:
                    run = 4 + frame
                    self.handle_frame(data + used + 4, frame)
                self.plane.request_done()
                if self.closed or self.admission:
                    break
                used += run
                if watch.last_us - began_us >= self.plane.turn_us and used < size:
                    self.muted |= NEXT_TURN             # other connections have their turn first
                if self.plane.out.size + self.plane.out.slice_bytes >= FLUSHED_BYTES:
                    self.flush()
                    if self.closed:
                        break
        finally:
            self.plane.busy = False
        self.spent_us = watch.last_us - began_us
        return used

    cdef int handle_frame(self, uint8_t* data, Py_ssize_t size) except -1:
        """One request: its header, its version, then the path that answers it."""
        cdef RequestHead head
        cdef WireReader r
        cdef ApiEntry* api
        cdef int place
        if self.authentication is not None:
            return self.handle_unauthenticated(data, size)
        begin_reading(&r, data, size, self.plane.max_elements)
        head.api_key = read_int16(&r)
        head.api_version = read_int16(&r)
        head.correlation_id = read_int32(&r)
        if r.bad:
            return self.fail(f"its request of {size} bytes is shorter than a header")
        place = api_place(head.api_key)
        if place < 0 or self.plane.apis[place].max_version < 0:
            return self.fail(f"it asked for API key {head.api_key}, which is not served")
        api = &self.plane.apis[place]
        api.requests += 1
        self.plane.watch.api_key = head.api_key
        head.flexible = head.api_version >= api.flexible_from
        if not api.min_version <= head.api_version <= api.max_version:
            if head.api_key != API_VERSIONS:
                return self.fail(
                    f"it asked for version {head.api_version} of API key {head.api_key}; "
                    f"served are {api.min_version} to {api.max_version}")
            head.api_version = UNSUPPORTED
        head.flexible_answer = head.flexible and head.api_key != API_VERSIONS
        head.client_id = read_string(&r, False)
        skip_tags(&r, head.flexible)
        if r.bad:
            return self.fail(f"the header of its request for API key {head.api_key} is cut short")
        if self.plane.faults is not None or self.fate is not None:
            return self.serve_struck(&head, &r)
        return self.serve(&head, &r)

    cdef int handle_unauthenticated(self, uint8_t* data, Py_ssize_t size) except -1:
        """A frame of a client that has not authenticated yet: it is not handled as a request."""
        self.authentication.receive((<const char*>data)[:size])
        return 0

    cdef int refuse_size(self, int64_t size) except -1:
        other = other_protocols.other_protocol(int(size & 0xFFFFFFFF).to_bytes(4, "big"))
        if other is not None:
            self.transport.write(other_protocols.HTTP_REFUSAL if other == "HTTP" else b"")
            return self.fail(other_protocols.OTHER_CLIENTS[other])
        name = other_protocols.SIZE_LIMITS[self.authentication is not None]
        return self.fail(
            f"it sent a request of {size} bytes; 0 to {self.max_frame_bytes} are allowed ({name})")

    cdef int serve_struck(self, RequestHead* head, WireReader* r) except -1:
        """While there are injected faults: apply those of a request, before and after it is
        executed. A slot before its answer delays that answer and all later ones, in order.
        """
        cdef int place = api_place(head.api_key)
        fate = self.fate
        self.fate = None
        if fate is None and self.plane.faults is not None:
            client_id = None
            if head.client_id.size >= 0:
                client_id = (<const char*>head.client_id.data)[:head.client_id.size]
            fate = self.plane.faults.strike(
                self, head.api_key, head.api_version, head.correlation_id, client_id,
                (<const char*>r.p)[:r.end - r.p])
        if fate is None:
            return self.serve(head, r)
        if fate.wait(self.admitted):        # it stays in the buffer and comes here again
            self.plane.apis[place].requests -= 1
            self.fate = fate
            self.admission = True
            return 0
        if fate.cuts_before:
            self.flush()
            self.close()
            return 0
        if fate.cuts_after:
            self.flush()
        if fate.holds:
            fate.hold(self.park(head.correlation_id, head.flexible_answer))
        if not fate.lost:
            self.carry_out(fate, head, r)
        if self.admission:
            self.fate = fate
        elif fate.cuts_after and not self.closed:
            self.close()
        return 0

    cdef int carry_out(self, object fate, RequestHead* head, WireReader* r) except -1:
        """Answer with an error, or with an error for some partitions."""
        answer = fate.answer()
        if answer is not None:
            self.plane.server.park(answer, self.park(head.correlation_id, head.flexible_answer))
            return 0
        self.plane.produce.injected = fate.refused
        self.plane.produce.injected_after = fate.denied
        self.plane.fetch.injected = fate.unread
        self.plane.fetch.injected_error = fate.fetch_error
        try:
            return self.serve(head, r)
        finally:
            self.plane.produce.injected = self.plane.produce.injected_after = None
            self.plane.fetch.injected = None
            self.plane.fetch.injected_error = 0

    # ---- the read side ----

    cdef int keep_rest(self, uint8_t* data, Py_ssize_t size, bint progress) except -1:
        """Keep the rest of a read: a partial request, or requests that must wait."""
        cdef int64_t eager, frame = self.admitted_bytes
        if progress and frame:
            self.admitted_bytes = 0
            self.plane.release(frame)
        if size == 0:
            self.own_end = 0
            if self.own != NULL and self.own_capacity <= READ_BYTES:
                self.give_back()
            return 0
        if self.own == NULL:
            self.reserve(max(size + SLACK_BYTES, MIN_OWN_BYTES))
            memcpy(self.own, data, size)
        elif data != self.own:
            memmove(self.own, data, size)
        self.own_end = size
        frame = 4 + <int64_t>load_int32(self.own) if size >= 4 else 4
        eager = EAGER_BYTES if self.authentication is None else MIN_OWN_BYTES
        frame = min(frame, max(eager, <int64_t>size * 2))
        self.reserve(max(size + SLACK_BYTES, frame))
        return 0

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        cdef uint8_t* data
        if capacity <= self.own_capacity:
            return 0
        if self.pinned is not None:
            data = <uint8_t*>malloc(capacity)
        else:
            data = <uint8_t*>realloc(self.own, capacity)
        if data == NULL:
            raise MemoryError(f"no memory for a request of {capacity} bytes")
        if self.pinned is not None:
            memcpy(data, self.own, self.own_end)
            self.give_to_threads()
        self.own = data
        self.own_capacity = capacity
        return 0

    cdef bint admit(self, int64_t size) except? False:
        """Take a request's declared size from the shared budget. If it is too small, stop
        reading until it is free.
        """
        cdef int64_t more = size - self.admitted_bytes
        cdef int64_t limit = self.plane.max_queued_bytes
        if more <= 0:
            return True
        if 0 <= limit < self.plane.queued_bytes + more and self.plane.queued_bytes > 0:
            self.plane.starved.append(self)
            return False
        self.plane.queued_bytes += more
        self.admitted_bytes = size
        return True

    cdef int give_back(self) except -1:
        cdef int64_t admitted = self.admitted_bytes
        if not self.give_to_threads():
            free(self.own)
        self.own = NULL
        self.own_capacity = self.own_end = 0
        self.admitted_bytes = 0
        if admitted:
            self.plane.release(admitted)
        return 0

    cdef bint give_to_threads(self) noexcept:
        """Give the memory to the threads that append from it, if any do."""
        cdef FrameMemory memory = self.pinned
        self.pinned = None
        if memory is not None:
            memory.owns = True
        return memory is not None

    cdef bint may_handle(self) noexcept:
        """Whether another request may be handled now; otherwise it stays in the buffer."""
        return (
            not self.write_paused and not self.muted and not self.admission
            and len(self.slots) < self.plane.max_parked and self.held_bytes < MAX_HELD_BYTES)

    cdef int regulate(self) except -1:
        """Read only while requests may be handled and the budget allows it."""
        cdef bint pause
        if self.closed or self.transport is None:
            return 0
        pause = not self.may_handle() or self.wants_budget()
        if pause and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        elif not pause and self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        return 0

    cdef bint wants_budget(self) except? True:
        cdef int64_t frame
        if self.own == NULL or self.own_end < 4:
            return False
        frame = 4 + <int64_t>load_int32(self.own)
        return frame > self.own_end and not self.admit(frame)
