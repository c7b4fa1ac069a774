"""The paths that answer the requests of a connection. Produce and Fetch never leave C. An answer
that stays valid until the image changes is cached. All other requests go to the server (dispatch),
which may park them.

The client's rights and quotas are looked up here. connection.pyx reads frames; outbox.pyx keeps the
order of answers.
"""

from libc.stdint cimport int16_t, uint8_t

from kstore._fast.broker.fetch_path cimport FetchRequest
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.produce_path cimport (
    PRODUCE_ANSWERED, PRODUCE_CLOSE, PRODUCE_LATER, PRODUCE_MALFORMED, PRODUCE_SILENT)
from kstore._fast.log.clock cimport now_us
from kstore._fast.broker.slots cimport Slot, begin_answer, end_answer
from kstore._fast.network.data_plane cimport api_place
from kstore._fast.network.request_times cimport LOCAL, QUEUE, RequestTimes
from kstore._fast.protocol.wire cimport (
    begin_reading, put_raw, read_number_tag, read_string, room)
from kstore._fast.record.buffer cimport load_int32, store_int32

cdef enum:
    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    DESCRIBE_TOPIC_PARTITIONS = 75
    MAX_CACHED_KEY_BYTES = 4096
    FIRST_FLEXIBLE_VERSIONS = 3     # of ApiVersions
    EXTENSION_FIELDS_TAG = 23202
    NOTED_BYTES = 64 * 1024         # below that it is not called in the next turn
    NOTED_PART = 4                  # and so much of its time


cdef inline bint tells_leaders(int api_key) noexcept:
    return api_key == METADATA or api_key == DESCRIBE_TOPIC_PARTITIONS


cdef class RequestPaths(Outbox):
    """Answers the requests of one connection."""

    def note_denied(self, int api_key, object right, int resource_type, bytes name):
        """Log that an operation (its bit) was denied."""
        self.plane.authorizer.on_denied(
            self.principal, self.client_host, right.bit_length() - 1, resource_type,
            name.decode("utf-8", "replace"), api_key)

    def greet(self, bytes body, int16_t version):
        """Keep the body of an ApiVersions request, and whether it asks for extensions."""
        cdef WireReader r
        self.hello = body
        self.hello_version = version
        if version < FIRST_FLEXIBLE_VERSIONS:
            return
        begin_reading(&r, <const uint8_t*><const char*>body, len(body), 0)
        read_string(&r, True)               # the software's name and version
        read_string(&r, True)
        if read_number_tag(&r, True, EXTENSION_FIELDS_TAG, 1) == 1:
            self.extended = True

    cdef int end_read(self) except -1:
        """Whether others go first: its share of the turn is used up, in bytes or time."""
        cdef bint all_of_it = self.taken_bytes >= self.plane.share() \
            or self.spent_us >= self.plane.turn_us
        if all_of_it:
            self.muted |= NEXT_TURN
        if all_of_it or self.taken_bytes >= NOTED_BYTES \
                or self.spent_us >= self.plane.turn_us // NOTED_PART:
            self.note_taken(all_of_it)
        return 0

    cdef int serve(self, RequestHead* head, WireReader* r) except -1:
        """Answer the request, or park it; and measure its time."""
        cdef TimedRequest timed = self.timed
        cdef Py_ssize_t slots = len(self.slots)
        cdef Py_ssize_t out_bytes = self.plane.out.size
        if timed is None:
            timed = self.begin_time(head, r.end - r.p)
        else:
            self.timed = None
            timed.answered()
        self.serve_charged(head, r)
        return self.end_local(timed, slots, out_bytes)

    cdef TimedRequest begin_time(self, RequestHead* head, Py_ssize_t size):
        """A request begins."""
        cdef RequestTimes times = self.plane.times
        cdef TimedRequest timed = TimedRequest.__new__(TimedRequest)
        timed.api_key = head.api_key
        timed.api_version = head.api_version
        timed.correlation_id = head.correlation_id
        timed.place = api_place(head.api_key)
        timed.size_bytes = size
        timed.copies = 1
        timed.mark_us = self.plane.watch.last_us
        timed.us[QUEUE] = max(timed.mark_us - self.read_us, <int64_t>0)
        if times.tell is not None:
            times.choose(timed)
            if head.client_id.size >= 0:
                timed.client_id = (<const char*>head.client_id.data)[:head.client_id.size]
        return timed

    cdef int end_local(
        self, TimedRequest timed, Py_ssize_t slots, Py_ssize_t out_bytes
    ) except -1:
        """It was handled: it is answered, parked, or must be handled again. ``slots`` and
        ``out_bytes``: the waiting answers, and the bytes in the buffer, before it.
        """
        cdef int64_t now = now_us()
        cdef Slot slot
        timed.us[LOCAL] += now - timed.mark_us
        timed.mark_us = now
        if self.admission:
            timed.on_disk = timed.api_key == PRODUCE and self.plane.table.lost_leaders is None
            self.timed = timed
        elif len(self.slots) > slots:
            slot = <Slot>self.slots[len(self.slots) - 1]
            slot.timed = timed
            if timed.api_key == FETCH:
                timed.on_disk = isinstance(slot, FetchRequest) and (<FetchRequest>slot).cold
            else:
                timed.on_disk = timed.api_key == PRODUCE and type(slot) is Slot
        elif self.plane.out.size > out_bytes:
            self.leaving.append(timed)
        else:
            self.end_time(timed, now, self.closed)      # it has no answer
        return 0

    cdef int serve_charged(self, RequestHead* head, WireReader* r) except -1:
        cdef AnswerBuffer out = self.buffer_for_answer()
        if self.quotas is None:
            return self.route(head, r, out)
        self.client_id = b""
        if head.client_id.size > 0:
            self.client_id = (<const char*>head.client_id.data)[:head.client_id.size]
        began = self.quotas.begin()
        self.route(head, r, out)
        self.quotas.spent(self, began)
        return 0

    cdef int route(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1:
        if head.api_key == PRODUCE:
            return self.handle_produce(head, r, out)
        if head.api_key == FETCH:
            return self.handle_fetch(head, r, out)
        return self.handle_other(head, r, out)

    cdef int charge(self, int api_key, int64_t size, AnswerBuffer out, Py_ssize_t at) except -1:
        """Count the size of a request or answer: a client over its quota gets the throttle
        time in the answer, and must wait.
        """
        cdef int32_t wait_ms = self.quotas.charge(self, api_key, size)
        if wait_ms > 0:
            if out is not None:
                store_int32(out.data + at, wait_ms)
            self.muted |= OVER_QUOTA
        return 0

    cdef object rights(self):
        """The client's rights; None: all."""
        authorizer = self.plane.authorizer
        if authorizer is None:
            return None
        if authorizer.known is not self.rights_among or self.principal is not self.rights_of:
            self.known_rights = authorizer.rights(self.principal, self.client_host)
            self.rights_among = authorizer.known
            self.rights_of = self.principal
        return self.known_rights

    cdef object listener_name(self):
        return self.listener

    cdef object principal_name(self):
        return self.principal

    cdef int close_answer(self, Slot slot) except -1:
        cdef AnswerBuffer out = slot.held
        if (self.quotas is not None and out is not None and isinstance(slot, FetchRequest)
                and (<FetchRequest>slot).replica_id < 0):
            end_answer(out, slot.start)
            self.charge(
                FETCH, load_int32(out.data + slot.start), out, slot.start + 8 + slot.flexible)
        return Outbox.close_answer(self, slot)

    cdef int handle_produce(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1:
        cdef Py_ssize_t start = begin_answer(out, head.correlation_id, head.flexible_answer)
        cdef int64_t size = r.end - r.p
        cdef int outcome
        self.plane.produce.rights = self.rights()
        self.plane.produce.client_id = head.client_id
        outcome = self.plane.produce.handle(self, r, head.api_version, out)
        if self.quotas is not None and outcome == PRODUCE_ANSWERED:
            self.charge(PRODUCE, size, out, self.plane.produce.throttle_at)
        elif self.quotas is not None and outcome == PRODUCE_SILENT:
            self.charge(PRODUCE, size, None, 0)
        if outcome == PRODUCE_ANSWERED and self.plane.produce.waits is not None:
            return self.park_produce(head, out, start)
        if outcome == PRODUCE_ANSWERED and not self.plane.produce.appended:
            end_answer(out, start)
            return self.queue_answer(out)
        if outcome == PRODUCE_ANSWERED:
            body = (<const char*>out.data)[start + 8 + head.flexible_answer:out.size]
            out.size = start
            slot = self.park(head.correlation_id, head.flexible_answer)
            self.plane.server.answer_when_durable(self.plane.produce.appended, slot, body)
            return 0
        out.size = start
        if outcome == PRODUCE_LATER:
            self.hold_request(PRODUCE)
        if outcome == PRODUCE_MALFORMED:
            return self.fail_malformed("Produce", head.api_version)
        if outcome == PRODUCE_CLOSE:
            return self.fail("a Produce request without acknowledgement (acks=0) failed")
        return 0

    cdef int park_produce(
        self, RequestHead* head, AnswerBuffer out, Py_ssize_t start
    ) except -1:
        """An answer that waits for followers, and for the disk if configured."""
        cdef list appended = self.plane.produce.appended
        cdef AnswerBuffer answer = out
        if out is self.plane.out:
            answer = AnswerBuffer(out.size - start)
            put_raw(answer, out.data + start, out.size - start)
            out.size = start
        slot = self.plane.produce.park(
            self, head.correlation_id, head.flexible_answer, answer, start)
        self.slots.append(slot)
        if appended:
            self.plane.server.answer_when_durable(appended, slot, b"")
        return 0

    cdef int handle_fetch(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1:
        cdef Py_ssize_t start = begin_answer(out, head.correlation_id, head.flexible_answer)
        cdef FetchRequest parked
        self.plane.fetch.rights = self.rights()
        self.plane.fetch.quota_bytes = self.plane.fetch.max_bytes
        if self.quotas is not None:
            self.plane.fetch.quota_bytes = self.quotas.fetch_bytes(self)
        parked = self.plane.fetch.handle(self, r, head.api_version, head.correlation_id, out)
        if r.bad:
            out.size = start
            return self.fail_malformed("Fetch", head.api_version)
        if self.plane.fetch.held:
            out.size = start
            return self.hold_request(FETCH)
        if parked is None:
            end_answer(out, start)
            if self.quotas is not None and not self.plane.fetch.from_follower:
                self.charge(
                    FETCH, load_int32(out.data + start), out, start + 8 + head.flexible_answer)
            return self.queue_answer(out)
        out.size = start
        self.slots.append(parked)
        return 0

    def hold(self):
        """Called by a handler: handle the request again after `admitted`, and no later request
        before it.
        """
        self.admission = True

    cdef int hold_request(self, int place) except -1:
        """The request stays in the buffer, and is handled again when it is admitted."""
        self.plane.apis[place].requests -= 1
        self.admission = True
        return 0

    cdef int handle_other(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1:
        """A cached answer, which is valid until the image changes, or the server's, now or
        later.
        """
        cdef Py_ssize_t size = r.end - r.p
        cdef bytes body = (<const char*>r.p)[:size]
        cdef PartitionTable table = self.plane.table
        cdef int place = api_place(head.api_key)
        cdef bint cached = self.plane.apis[place].cached and size <= MAX_CACHED_KEY_BYTES
        cdef Py_ssize_t start
        answer = None
        if self.plane.look_at_peers is not None and tells_leaders(head.api_key):
            self.plane.look()
        if table.lost_leaders is not None and table.leader_waits.holds(
                self, head.api_key, head.api_version, body, self.rights()):
            return self.hold_request(place)
        if head.api_key == API_VERSIONS and size <= MAX_CACHED_KEY_BYTES:
            self.greet(body, head.api_version)
        if cached:
            key = (
                head.api_key, head.api_version, self.listener, body, self.rights(), self.extended)
            answer = self.plane.answers.get(key)
        if answer is None:
            client_id = None
            if head.client_id.size >= 0:
                client_id = (<const char*>head.client_id.data)[:head.client_id.size]
            self.plane.last_errors = None
            answer = self.plane.server.dispatch(
                self, head.api_key, head.api_version, head.correlation_id, client_id, body)
            if self.admission:
                return self.hold_request(place)
            if cached and type(answer) is bytes:
                self.plane.keep_answer(key, answer)
        elif self.plane.answers_errors:
            self.plane.count_kept(key)
        if type(answer) is bytes:
            start = begin_answer(out, head.correlation_id, head.flexible_answer)
            size = len(<bytes>answer)
            room(out, size)
            put_raw(out, <const uint8_t*><const char*>answer, size)
            end_answer(out, start)
            return self.queue_answer(out)
        if answer is None or self.closed:
            return 0
        self.plane.server.park(answer, self.park(head.correlation_id, head.flexible_answer))
        return 0
