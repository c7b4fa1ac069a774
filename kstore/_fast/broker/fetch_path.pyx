"""Fetch, versions 4 to 18, from the frame to the answer: sessions, long poll, byte limits,
isolation.

Log bytes are read directly into the answer. The session cache decides which sessions are kept; the
partition table knows the leaders.
"""

from kstore._fast.log.clock cimport now_ms
from kstore._fast.error_codes cimport (
    FENCED_LEADER_EPOCH, FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH, KAFKA_STORAGE_ERROR, NONE, NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_LEADER_EPOCH, UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION)
from kstore._fast.broker.fetch_answer cimport Reader, find_readable, write_head, write_topics
from kstore._fast.broker.fetch_topics cimport (
    is_news, parse_forgotten, parse_replica_state, parse_topics, refused_parts)
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.broker.replica_state cimport Follower
from kstore._fast.broker.rights cimport MAY_ACT_IN_CLUSTER
from kstore._fast.protocol.wire cimport (
    WireBytes, read_int8, read_int16, read_int32, read_int64, read_string, skip_tags)

cdef enum:
    FIRST_SESSION = 7
    FIRST_RACK = 11
    FIRST_FLEXIBLE = 12
    FIRST_TOPIC_ID = 13
    FIRST_REPLICA_STATE = 15
    FINAL_EPOCH = -1
    READ_COMMITTED = 1
    CONSUMER = -1
    LONGEST_WAIT_MS = 300000                        # regardless of the client's limit
    COPIED_BYTES = 2 * 1024 * 1024                  # with TLS: an answer is built in one turn


cdef int parse(FetchRequest request, WireReader* r, PartitionTable table) except -1:
    """Fill request from its frame; r.bad afterwards means that the frame is malformed."""
    cdef int version = request.version
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef WireBytes rack
    request.replica_id = CONSUMER
    request.replica_epoch = -1
    if version < FIRST_REPLICA_STATE:
        request.replica_id = read_int32(r)
    request.max_wait_ms = read_int32(r)
    request.min_bytes = read_int32(r)
    request.max_bytes = read_int32(r)
    request.isolation_level = read_int8(r)
    request.session_epoch = FINAL_EPOCH
    if version >= FIRST_SESSION:
        request.session_id = read_int32(r)
        request.session_epoch = read_int32(r)
    parse_topics(r, version, table, request.named)
    if version >= FIRST_SESSION:
        parse_forgotten(r, version, request.forgotten)
    if version >= FIRST_RACK:
        rack = read_string(r, flexible)
        r.bad |= rack.size < 0
        if rack.size > 0 and table.rack_aware:
            request.rack = (<const char*>rack.data)[:rack.size]
    if version >= FIRST_REPLICA_STATE:
        parse_replica_state(r, &request.replica_id, &request.replica_epoch)
    else:
        skip_tags(r, flexible)
    return 0


cdef class FetchRequest(Slot):
    """A fetch in progress. A parked fetch is the slot of its response, and waits for its partitions
    to grow.
    """

    cdef int check(self) except -1:
        if not self.done and not self.still_gathers() and self.look_again():
            if self.is_ready():
                self.finish()
            elif self.partial and not self.gathering:
                self.gathering = True
                self.path.gathering.add(self)
        return 0

    cdef bint is_ready(self) noexcept:
        """Whether there is enough to answer; data that is being read counts, and is waited for."""
        if self.cold and self.found_bytes == 0:
            return self.urgent
        if self.urgent or self.overdue:
            return True
        return self.found_bytes >= self.min_bytes and (self.gathered or not self.partial)

    cdef bint still_gathers(self) noexcept:
        """Whether the logs need no check, because more is expected of everything."""
        cdef FetchPart part
        if not self.gathering or self.gathered or self.overdue or self.cold or self.barred:
            return False
        for part in self.parts:
            if not part.still_expects():
                return False
        return True

    cdef int end_wait(self) except -1:
        self.answer_now()
        return 0

    cdef int expire(self) except -1:
        """The maximum wait is over: answer with the existing data, after cold data was read."""
        self.overdue = True
        return self.check()

    cdef int end_gathering(self) except -1:
        """End the wait for more data, because its time is over."""
        cdef FetchPart part
        self.gathered = True
        for part in self.parts:
            part.end_gathering(False)
        return self.check()

    def resume(self):
        """Continue: the missing pages are in memory now."""
        self.check()

    def answer_now(self):
        """Answer with the available data, without waiting for a disk."""
        if not self.done and self.look_again():
            self.finish()

    cdef int take_rights(self, object rights) except -1:
        """Look for data with these rights of the client; None: all."""
        if self.replica_id < 0:
            self.rights = rights
        else:
            self.barred = rights is not None and (
                not rights.cluster & MAY_ACT_IN_CLUSTER
                or (self.path.peer_listener is not None
                    and self.sink.listener_name() != self.path.peer_listener))
        return 0

    cdef bint look_again(self) except -1:
        """Whether it can still be answered. If not, its connection ends; other waiters are still
        woken.
        """
        try:
            self.take_rights(self.sink.rights())        # as they are now
            self.path.look(self)
        except Exception as problem:
            self.path.report(f"a fetch cannot be answered: {problem!r}", "a fetch")
            self.unpark()
            self.sink.abandon(self)
            return False
        return True

    cdef int finish(self) except -1:
        cdef AnswerBuffer out
        cdef FetchPart part
        self.unpark()
        if self.gathering and not self.gathered:
            for part in self.parts:
                part.end_gathering(True)
        out = self.sink.open_answer(self)
        try:
            self.path.write_answer(self, out)
        except Exception as problem:
            self.path.report(f"a fetch cannot be answered: {problem!r}", "a fetch")
            self.sink.abandon(self)
            return 0
        self.sink.close_answer(self)
        return 0

    cdef int cancel(self) except -1:
        self.done = True
        self.unpark()
        return 0

    cdef int unpark(self) except -1:
        cdef FetchPart part
        self.path.waits.drop(self)
        if self.session is not None and self.session.parked is self:
            self.session.parked = None
        if self.replica_id >= 0:
            self.path.table.followers.pop(self, None)
            return 0
        for part in self.parts:
            if part.partition is not None:
                part.partition.waiters.pop(self, None)
        return 0


cdef class FetchPath:
    """The state that all fetches share: partitions, sessions and limits."""

    def __init__(
        self, PartitionTable table not None, cache, call_later, report, *, int64_t max_bytes
    ):
        self.table = table
        self.cache = cache
        self.sessions = cache.sessions
        self.waits = SlotDeadlines(table.replication, call_later)
        self.gathering = Gathering(call_later)
        self.report = report
        self.max_bytes = max_bytes
        self.quota_bytes = max_bytes

    @property
    def parked(self):
        """The number of fetches that wait for data."""
        return len(self.waits.waiting)

    def session_partitions(self, int session_id):
        """(topic name or id, partition) of each partition in a fetch session."""
        cdef FetchSession session = self.sessions.get(session_id)
        return [] if session is None else list(session.parts)

    def answer_parked(self):
        """Answer every waiting fetch with the available data, because the broker stops."""
        cdef FetchRequest request
        for request in self.waits.slots():
            request.answer_now()

    cdef FetchRequest handle(
        self, AnswerSink sink, WireReader* r, int version, int32_t correlation_id, AnswerBuffer out
    ):
        cdef FetchRequest request = FetchRequest.__new__(FetchRequest)
        cdef list refused = []
        cdef int16_t error
        request.path = self
        request.sink = sink
        request.version = version
        request.named = []
        request.forgotten = []
        parse(request, r, self.table)
        if r.bad:
            return None
        self.held = self.table.lost_leaders is not None and self.must_wait(request)
        if self.held:
            return None
        self.requests += 1
        request.take_rights(self.rights)
        self.from_follower = request.replica_id >= 0 and not request.barred
        request.max_bytes = max(min(request.max_bytes, self.max_bytes), 0)
        if not self.from_follower:
            request.max_bytes = min(request.max_bytes, self.quota_bytes)
        request.min_bytes = min(request.min_bytes, request.max_bytes)
        if not out.takes_slices and request.replica_id < 0:
            request.max_bytes = min(request.max_bytes, max(COPIED_BYTES, request.min_bytes))
        error = self.injected_error
        if error == NONE:
            error = self.open_session(request)
        if error == NONE and request.parts and not 0 <= request.isolation_level <= READ_COMMITTED:
            error = UNKNOWN_SERVER_ERROR
            refused = refused_parts(request.named, version)
        if error != NONE:
            write_head(out, version, error, 0, self.table)
            self.write_rows(request, refused, out)
            return None
        request.noting = request.replica_id >= 0
        request.injected = self.injected
        self.look(request)
        request.noting = False
        request.urgent = request.urgent and (request.replica_id >= 0 or is_news(request.parts))
        request.overdue = request.max_wait_ms <= 0 or not request.parts
        if request.is_ready():
            self.write_answer(request, out)
            return None
        request.correlation_id = correlation_id
        request.flexible = version >= FIRST_FLEXIBLE
        self.park(request)
        return request

    cdef bint must_wait(self, FetchRequest request) except -1:
        """Whether it is held until the leader of a partition that it can't read here is known."""
        cdef FetchSession session = self.session_of(request)
        cdef FetchPart part
        cdef list parts = request.named if request.replica_id < 0 else []
        if session is not None and request.session_epoch > 0 and request.replica_id < 0:
            parts = parts + list(session.parts.values())
        for part in parts:
            part.resolve(self.table)
            if part.partition is not None and check_leader(request, part) != NONE \
                    and self.table.lacks_leader(part.partition):
                return self.table.leader_waits.hold(request.sink, part.partition)
        return False

    cdef int16_t open_session(self, FetchRequest request) except -1:
        """The partitions of the request; an error code if its session does not fit."""
        cdef FetchSession session
        if request.session_epoch == 0 or request.session_epoch == FINAL_EPOCH:
            if request.session_id != 0 and self.session_of(request) is not None:
                self.cache.remove(request.session_id)
            request.parts = request.named
            request.opens_session = request.session_epoch == 0
            return NONE
        session = self.session_of(request)
        if session is None:
            return FETCH_SESSION_ID_NOT_FOUND
        if session.by_id != (request.version >= FIRST_TOPIC_ID):
            return FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != request.session_epoch:
            return INVALID_FETCH_SESSION_EPOCH
        if session.parked is not None:
            # A follower sends another fetch: answer the waiting one now.
            (<FetchRequest>session.parked).answer_now()
        session.last_used_ms = now_ms()
        if session.merge(request.named, request.forgotten) and not self.cache.resized(session):
            return FETCH_SESSION_ID_NOT_FOUND       # the client continues with all its partitions
        request.parts = list(session.parts.values())
        if request.parts:
            request.session = session
        else:
            self.cache.remove(request.session_id)
        return NONE

    cdef FetchSession session_of(self, FetchRequest request):
        """The session that it names; None if there is none, or it belongs to another client."""
        cdef FetchSession session = self.sessions.get(request.session_id)
        cdef AnswerSink sink = request.sink
        if session is not None and session.belongs_to(sink.principal_name(), sink.listener_name()):
            return session
        return None

    cdef int look(self, FetchRequest request) except -1:
        """Find what can be read now for each partition, within the byte limits."""
        cdef FetchPart part
        cdef int64_t left = request.max_bytes
        cdef bint min_one = True
        request.found_bytes = 0
        request.urgent = request.cold = False
        request.partial = request.replica_id >= 0
        for part in request.parts:
            if part.follower is not None and not request.barred and part.is_unchanged():
                continue
            self.look_part(request, part, left, min_one)
            if part.error != NONE or part.diverging_epoch >= 0 or part.preferred_replica >= 0:
                request.urgent = True
            if part.slice.size_bytes > 0:
                min_one = False
                request.partial = request.partial and part.expects_more()
                request.found_bytes += part.slice.size_bytes
                left = max(left - part.slice.size_bytes, 0)
        request.partial = request.partial and request.found_bytes > 0
        return 0

    cdef int look_part(
        self, FetchRequest request, FetchPart part, int64_t limit, bint min_one
    ) except -1:
        cdef Partition partition
        cdef int64_t end
        part.file = None
        part.follower = None
        part.slice.size_bytes = 0
        part.diverging_epoch = part.preferred_replica = -1
        part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
        part.resolve(self.table)
        partition = part.partition
        self.table.counts.fetch_requests += 1
        if partition is not None:
            partition.entry.counts.fetch_requests += 1
        part.error = part.check_rights(
            request.sink, request.rights, request.barred, self.table)
        if part.error == NONE:
            part.error = check_leader(request, part)
        if part.error == NONE and request.injected is not None:
            part.error = request.injected.get(partition, NONE)
        if part.error == NONE:
            part.error = part.check_offset()
        if part.error == NONE and request.replica_id >= 0:
            self.check_follower(request, part)
        if part.error != NONE:
            return 0
        part.high_watermark = end = partition.core.high_watermark
        part.last_stable_offset = partition.core.last_stable_offset
        part.log_start_offset = partition.core.log_start_offset
        if part.diverging_epoch >= 0:
            return 0
        if request.replica_id >= 0:
            end = partition.core.log_end_offset
            if part.fetch_offset >= end:
                part.set_unchanged(partition.admit_follower(
                    request.replica_id, request.replica_epoch))
        elif request.isolation_level == READ_COMMITTED:
            end = part.last_stable_offset
        if request.rack is not None and request.replica_id == CONSUMER:
            part.prefer(self.table.node_id, request.rack)
        limit = min(limit, <int64_t>part.max_bytes)
        if part.fetch_offset >= end or (limit <= 0 and not min_one) or part.preferred_replica >= 0:
            return 0
        if self.throttle is not None and request.replica_id >= 0 \
                and not self.throttle.may_send(partition, request.replica_id):
            return 0
        if not find_readable(
                part, end, limit, min_one, request.replica_id, self.report, request):
            request.cold = True
        return 0

    cdef int check_follower(self, FetchRequest request, FetchPart part) except -1:
        """Refuse a broker that is no replica; note the progress of a replica."""
        cdef Partition partition = part.partition
        cdef Follower follower = partition.admit_follower(
            request.replica_id, request.replica_epoch)
        if follower is None:
            part.error = NOT_LEADER_OR_FOLLOWER
            part.diverging_epoch = -1
            return 0
        if request.noting and part.diverging_epoch < 0:
            partition.note_fetch(
                follower, part.fetch_offset, part.reader_start_offset,
                self.table.replication.now_ms())
        if (self.table.rack_aware and request.session is not None
                and part.told_high_watermark < partition.core.high_watermark):
            request.urgent = True           # consumers read from it (KIP-392): it must know
        if 0 <= part.told_log_start_offset < partition.core.log_start_offset:
            request.urgent = True           # DeleteRecords waits for it
        return 0

    cdef int park(self, FetchRequest request) except -1:
        cdef FetchPart part
        if request.replica_id >= 0:
            self.table.followers[request] = None
        else:
            for part in request.parts:
                if part.partition is not None:
                    part.partition.waiters[request] = None
        if request.session is not None:
            request.session.parked = request
        if request.partial:
            request.gathering = True
            self.gathering.add(request)
        return self.waits.add(request, min(request.max_wait_ms, LONGEST_WAIT_MS))

    cdef int write_answer(self, FetchRequest request, AnswerBuffer out) except -1:
        cdef FetchPart part
        cdef FetchSession session = request.session
        cdef list parts = request.parts
        cdef int32_t session_id = 0
        cdef bint privileged = request.replica_id >= 0
        if session is not None:
            session_id = session.session_id
            parts = [part for part in parts if part.has_news()]
            for part in parts:
                part.told()
                if part.slice.size_bytes > 0:
                    session.rotate(part)
        elif request.opens_session and may_have_session(request):
            principal = request.sink.principal_name()
            session_id = self.cache.reserve(principal, privileged, len(parts), now_ms())
            if session_id:
                for part in parts:
                    part.told()
                self.cache.add(FetchSession(
                    session_id, parts, principal=principal,
                    listener=request.sink.listener_name(),
                    by_id=request.version >= FIRST_TOPIC_ID, privileged=privileged,
                    now_ms=now_ms()))
        if self.throttle is not None and request.replica_id >= 0:
            for part in parts:
                if part.slice.size_bytes > 0:
                    self.throttle.sent(part.partition, request.replica_id, part.slice.size_bytes)
        write_head(out, request.version, NONE, session_id, self.table)
        self.write_rows(request, parts, out)
        return 0

    cdef int write_rows(self, FetchRequest request, list parts, AnswerBuffer out) except -1:
        """The topics and the end of the answer."""
        cdef Reader reader
        reader.version = request.version
        reader.committed = request.isolation_level == READ_COMMITTED
        reader.replica_id = request.replica_id
        reader.extended = request.sink.extended
        self.bytes_out += write_topics(
            parts, &reader, self.table, request.sink.listener_name(), out, self.report)
        return 0


cdef int16_t check_leader(FetchRequest request, FetchPart part) except -1:
    """Whether this broker may answer for the partition, given the reader's epoch."""
    cdef Partition partition = part.partition
    if partition is None:
        unknown = part.by_id and request.path.table.find_id(part.topic) is None
        return UNKNOWN_TOPIC_ID if unknown else UNKNOWN_TOPIC_OR_PARTITION
    if not partition.online and not (
            partition.follows and request.replica_id < 0 and request.version >= FIRST_RACK):
        return KAFKA_STORAGE_ERROR if partition.failed else NOT_LEADER_OR_FOLLOWER
    if part.current_leader_epoch >= 0:
        if part.current_leader_epoch < partition.leader_epoch:
            return FENCED_LEADER_EPOCH
        if part.current_leader_epoch > partition.leader_epoch:
            return UNKNOWN_LEADER_EPOCH
    return NONE


cdef bint may_have_session(FetchRequest request) except -1:
    """False if it may read none of the partitions; an unknown id gives no right."""
    cdef FetchPart part
    if request.rights is None and not request.barred:
        return True
    for part in request.parts:
        if part.error != TOPIC_AUTHORIZATION_FAILED and part.error != UNKNOWN_TOPIC_ID:
            return True
    return False
