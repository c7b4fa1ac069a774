"""The partitions to fetch from one leader, the incremental fetch session (KIP-227) in which the
leader remembers them, and the Fetch request that names only the changes.

A partition without changes costs nothing. This module has no connection (replica_fetcher.pyx does).
"""

from kstore._fast.record.buffer cimport store_int32
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.protocol.wire cimport (
    put_count, put_int8, put_int16, put_int32, put_int64, put_raw, put_string, put_unsigned, room)

cdef enum:
    FETCH = 1
    VERSION = 17
    LARGEST_EPOCH = 0x7FFFFFFF
    REPLICA_STATE_TAG = 1
    REPLICA_STATE_BYTES = 13


cdef class Followed:
    """One partition that is copied from its leader."""

    def __init__(self, Partition partition not None, key, int leader_epoch, *, bint held=False):
        self.partition = partition
        self.key = key
        self.leader_epoch = leader_epoch
        self.topic_id = partition.entry.topic_id
        self.index = partition.index
        self.held = held
        self.asked_offset = -1

    def __repr__(self):
        return f"Followed({self.key}, epoch {self.leader_epoch})"


cdef class ReplicaSession:
    """The partitions that are copied from one leader, and what the leader knows of them."""

    def __init__(self, *, int leader_id, int node_id, int64_t broker_epoch):
        self.leader_id = leader_id
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.client_id = f"broker-{node_id}-fetcher".encode()
        self.max_wait_ms = 500
        self.min_bytes = 1
        self.max_bytes = 10 * 1024 * 1024
        self.partition_bytes = 1024 * 1024
        self.topics = {}
        self.changed = []
        self.forgotten = []
        self.out = AnswerBuffer(4096)

    def add(self, Followed followed not None):
        """Start to copy a partition; it replaces one with the same place."""
        if followed.topic_id in self.topics:
            self.drop(followed.topic_id, followed.index)
        self.topics.setdefault(followed.topic_id, {})[followed.index] = followed
        if not followed.held:
            self.active += 1
            self.want(followed)

    def remove(self, Followed followed not None):
        """Stop copying a partition; no effect if another object has its place."""
        cdef dict places = self.topics.get(followed.topic_id)
        if places is not None and places.get(followed.index) is followed:
            self.drop(followed.topic_id, followed.index)

    def hold(self, Followed followed not None):
        """Do not fetch a partition until it is released; data that still arrives is ignored."""
        if not followed.held:
            followed.held = True
            self.active -= 1
            if followed.asked:
                followed.asked = False
                self.forgotten.append((followed.topic_id, followed.index))

    def release(self, Followed followed not None):
        """Fetch a partition again, from its log end offset."""
        if followed.held and self.has(followed):
            followed.held = False
            self.active += 1
            self.want(followed)

    def tell(self, Followed followed not None):
        """Report a change to the leader at once: the log start offset."""
        if not followed.held and self.has(followed):
            self.want(followed)

    def has(self, Followed followed not None):
        """Whether this object is the one that is copied."""
        places = self.topics.get(followed.topic_id)
        return places is not None and places.get(followed.index) is followed

    def all(self):
        """Every partition that is copied, including held ones."""
        return [each for places in self.topics.values() for each in (<dict>places).values()]

    cdef int drop(self, bytes topic_id, int32_t index) except -1:
        cdef dict places = self.topics[topic_id]
        cdef Followed followed = places.pop(index, None)
        if not places:
            del self.topics[topic_id]
        if followed is not None:
            self.hold(followed)
        return 0

    cdef int want(self, Followed followed) except -1:
        self.note_changed(followed)
        self.urgent = True
        return self.fetch_soon()

    cdef int note_changed(self, Followed followed) except -1:
        if not followed.changed:
            followed.changed = True
            self.changed.append(followed)
        return 0

    cdef int fetch_soon(self) except -1:
        return 0

    # ---- the request ----

    cdef int begin_session(self) except -1:
        """The leader does not know the session."""
        cdef Followed followed
        self.session_id = self.session_epoch = 0
        self.forgotten = []
        self.changed = []
        for places in self.topics.values():
            for followed in (<dict>places).values():
                followed.asked = False
                followed.changed = False
                if not followed.held:
                    self.note_changed(followed)
        return 0

    cdef int write_next(self) except -1:
        """Write the next fetch of the session, with the changes since the last one."""
        cdef Followed followed
        cdef list listed = []
        cdef list forgotten
        if self.session_id == 0:
            self.begin_session()
        elif self.session_epoch == LARGEST_EPOCH:
            self.session_epoch = 1
        else:
            self.session_epoch += 1
        for followed in self.changed:
            followed.changed = False
            if not followed.held and followed.partition.core is not None:
                listed.append(followed)
        self.changed = []
        forgotten, self.forgotten = self.forgotten, []
        if forgotten:
            again = {((<Followed>f).topic_id, (<Followed>f).index) for f in listed}
            forgotten = [place for place in forgotten if place not in again]
        self.urgent = False
        self.write_fetch(listed, forgotten)
        self.sent += 1
        return 0

    cdef int write_fetch(self, list listed, list forgotten) except -1:
        cdef AnswerBuffer out = self.out
        out.clear()
        room(out, 128)
        put_int32(out, 0)                           # the size, below
        put_int16(out, FETCH)
        put_int16(out, VERSION)
        put_int32(out, self.sent)
        put_string(out, <const uint8_t*><const char*>self.client_id, len(self.client_id), False)
        put_int8(out, 0)
        # A session is opened at once: a partition added meanwhile could not be named.
        put_int32(out, self.max_wait_ms if self.session_id or self.no_session else 0)
        put_int32(out, self.min_bytes)
        put_int32(out, self.max_bytes)
        put_int8(out, 0)                            # isolation: everything
        put_int32(out, self.session_id)
        put_int32(out, self.session_epoch)
        self.write_topics(listed)
        self.write_forgotten(forgotten)
        room(out, 32)
        put_unsigned(out, 1)                        # no rack
        put_unsigned(out, 1)
        put_unsigned(out, REPLICA_STATE_TAG)
        put_unsigned(out, REPLICA_STATE_BYTES)
        put_int32(out, self.node_id)
        put_int64(out, self.broker_epoch)
        put_int8(out, 0)
        store_int32(out.data, <int32_t>(out.size - 4))
        return 0

    cdef int write_topics(self, list listed) except -1:
        cdef AnswerBuffer out = self.out
        cdef Followed followed
        cdef Py_ssize_t i, count, runs = 0
        cdef bytes topic_id = None
        cdef LogCore core
        for followed in listed:
            runs += followed.topic_id != topic_id
            topic_id = followed.topic_id
        room(out, 8)
        put_count(out, runs, True)
        topic_id = None
        for i in range(len(listed)):
            followed = <Followed>listed[i]
            room(out, 80)
            if followed.topic_id != topic_id:
                if topic_id is not None:
                    put_int8(out, 0)
                topic_id = followed.topic_id
                count = 1
                while i + count < len(listed) \
                        and (<Followed>listed[i + count]).topic_id == topic_id:
                    count += 1
                put_raw(out, <const uint8_t*><const char*>topic_id, 16)
                put_count(out, count, True)
            core = followed.partition.core
            if not followed.asked or followed.asked_offset != core.log_end_offset:
                followed.asked_offset = core.log_end_offset
                followed.offset_request = self.sent
            if not followed.asked:
                followed.asked = True
                followed.first_request = self.sent
            put_int32(out, followed.index)
            put_int32(out, followed.leader_epoch)
            put_int64(out, followed.asked_offset)
            put_int32(out, core.epochs.latest_epoch)
            put_int64(out, core.log_start_offset)
            put_int32(out, self.partition_bytes)
            put_int8(out, 0)
        if topic_id is not None:
            room(out, 1)
            put_int8(out, 0)
        return 0

    cdef int write_forgotten(self, list forgotten) except -1:
        cdef AnswerBuffer out = self.out
        cdef dict topics = {}
        for topic_id, index in forgotten:
            topics.setdefault(topic_id, []).append(index)
        room(out, 8)
        put_count(out, len(topics), True)
        for topic_id, indexes in topics.items():
            room(out, 32 + 4 * len(indexes))
            put_raw(out, <const uint8_t*><const char*><bytes>topic_id, 16)
            put_count(out, len(indexes), True)
            for index in indexes:
                put_int32(out, <int32_t>index)
            put_int8(out, 0)
        return 0
