"""Parses a Produce request: one pass over its frame, before anything is appended.

The arrays are reused, so a small request allocates nothing. They grow with the entries that were
read, never by a declared count. This module knows no topics and does not read records. A topic that
is named twice is one topic, and the last batch of a repeated partition counts, as in Kafka.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from kstore._fast.protocol.wire cimport (
    read_bytes, read_int16, read_int32, read_number_tag, read_some, read_string, read_topic)
from kstore._fast.record.batch cimport (
    BATCH_ATTRIBUTES_AT, BATCH_HEADER_SIZE, COMPRESSION_MASK, TRANSACTIONAL_MASK)
from kstore._fast.record.unpack cimport AT_ONCE_BYTES

cdef enum:
    PARTITION_EPOCH_TAG = 23200
    PARTITION_COUNT_TAG = 25300
    LEADER_EPOCH_TAG = 35900
    USE_OFFSET_TAG = 39100
    EXACT_TAG = 39102
    FIRST_ROOM = 16
    KEPT_ROOM = 4096                # topics, or partitions, for which memory is kept
    FEW = 16                        # up to which all pairs are compared


cdef inline bytes topic_key(const ProduceTopic* topic):
    return (<const char*>topic.name.data)[:topic.name.size]


cdef class ProduceRequest:
    def __dealloc__(self):
        PyMem_RawFree(self.topics)
        PyMem_RawFree(self.partitions)

    cdef bint parse(self, WireReader r, int version) except -1:
        cdef ProduceTopic* topic
        cdef ProducePartition* part
        cdef WireReader tags
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef bint packed = False
        cdef int kinds = 0
        cdef Py_ssize_t topics, partitions, i, j
        self.begin(version)
        self.transactional_id = read_string(&r, flexible)
        self.in_transaction = self.transactional_id.size >= 0
        self.acks = read_int16(&r)
        self.timeout_ms = read_int32(&r)
        topics = read_some(&r, flexible)
        for i in range(topics):
            if self.topic_count == self.topic_room:
                self.grow_topics()
            topic = &self.topics[self.topic_count]
            self.topic_count += 1
            topic.name = read_topic(&r, self.by_id, flexible)
            if topic.name.size < 0:
                return False
            topic.first = self.partition_count
            topic.count = partitions = read_some(&r, flexible)
            for j in range(partitions):
                if self.partition_count == self.partition_room:
                    self.grow_partitions()
                part = &self.partitions[self.partition_count]
                self.partition_count += 1
                part.index = read_int32(&r)
                part.records = read_bytes(&r, flexible)
                tags = r
                part.known_epoch = read_number_tag(&r, flexible, LEADER_EPOCH_TAG, 4)
                part.known_life = -1
                if flexible and not self.by_id:     # an id identifies one incarnation
                    part.known_life = read_number_tag(&tags, flexible, PARTITION_EPOCH_TAG, 4)
                if r.bad or tags.bad:
                    return False
                packed |= part.records.size > AT_ONCE_BYTES
                if part.records.size > BATCH_HEADER_SIZE:
                    kinds |= part.records.data[BATCH_ATTRIBUTES_AT + 1]
            topic.known_count = read_number_tag(&r, flexible, PARTITION_COUNT_TAG, 4)
            if r.bad:
                return False
        tags = r
        self.exact = read_number_tag(&tags, flexible, EXACT_TAG, 1) > 0
        self.use_offset = read_number_tag(&r, flexible, USE_OFFSET_TAG, 1) > 0 or self.exact
        # batches that are stored unchanged are not checked
        self.packed = not self.exact and (packed or (kinds & COMPRESSION_MASK) != 0)
        self.transactional = not self.exact and (kinds & TRANSACTIONAL_MASK) != 0
        self.in_transaction = self.in_transaction and not self.exact
        if (self.partition_count != 1 or self.topic_count > 1) and not r.bad and self.repeats():
            self.merge()
        return not r.bad

    cdef void begin(self, int version) noexcept:
        self.version = version
        self.flexible = version >= FIRST_FLEXIBLE
        self.by_id = version >= FIRST_TOPIC_ID
        self.topic_count = self.partition_count = 0

    cdef bint repeats(self) except -1:
        cdef ProduceTopic* topic
        cdef Py_ssize_t i, j, k
        cdef bint many = self.topic_count > FEW
        for i in range(self.topic_count):
            topic = &self.topics[i]
            if topic.count == 0:
                return True
            many |= topic.count > FEW
        if many:
            return self.partition_count != len({
                (i, self.partitions[j].index)
                for i in range(self.topic_count)
                for j in range(self.topics[i].first, self.topics[i].first + self.topics[i].count)
            }) or self.topic_count != len({topic_key(&self.topics[i])
                                           for i in range(self.topic_count)})
        for i in range(self.topic_count):
            topic = &self.topics[i]
            for j in range(topic.first, topic.first + topic.count):
                for k in range(topic.first, j):
                    if self.partitions[k].index == self.partitions[j].index:
                        return True
            for k in range(i):
                if self.topics[k].name.size == topic.name.size and memcmp(
                        self.topics[k].name.data, topic.name.data, topic.name.size) == 0:
                    return True
        return False

    cdef int merge(self) except -1:
        """One entry per topic with partitions, and one batch per partition."""
        cdef dict topics = {}
        cdef ProducePartition* kept
        cdef Py_ssize_t i, j
        for i in range(self.topic_count):
            rows = topics.setdefault(topic_key(&self.topics[i]), {})
            for j in range(self.topics[i].first, self.topics[i].first + self.topics[i].count):
                rows[self.partitions[j].index] = i, j
        kept = <ProducePartition*>PyMem_RawMalloc(
            max(self.partition_room, 1) * sizeof(ProducePartition))
        if kept == NULL:
            raise MemoryError(f"no memory for {self.partition_room} partitions")
        self.put_merged(topics, kept)
        PyMem_RawFree(self.partitions)
        self.partitions = kept
        return 0

    cdef int put_merged(self, dict topics, ProducePartition* partitions) except -1:
        cdef ProduceTopic last
        cdef Py_ssize_t i, j, n = 0, count = 0
        cdef list names = [self.topics[i].name.data - self.topics[0].name.data
                           for i in range(self.topic_count)]
        cdef const uint8_t* base = self.topics[0].name.data
        cdef list known = [self.topics[i].known_count for i in range(self.topic_count)]
        for key, rows in topics.items():
            if not rows:
                continue
            i = max([row[0] for row in rows.values()])
            last.name.data = base + <Py_ssize_t>names[i]
            last.name.size = len(<bytes>key)
            last.known_count = known[i]
            last.first = n
            last.count = len(<dict>rows)
            for _, j in rows.values():
                partitions[n] = self.partitions[j]
                n += 1
            self.topics[count] = last
            count += 1
        self.topic_count = count
        self.partition_count = n
        return 0

    cdef int grow_topics(self) except -1:
        cdef Py_ssize_t room = self.topic_room * 2 or FIRST_ROOM
        cdef ProduceTopic* moved = <ProduceTopic*>PyMem_RawRealloc(
            self.topics, room * sizeof(ProduceTopic))
        if moved == NULL:
            raise MemoryError(f"no memory for {room} topics of a Produce request")
        self.topics = moved
        self.topic_room = room
        return 0

    cdef int grow_partitions(self) except -1:
        cdef Py_ssize_t room = self.partition_room * 2 or FIRST_ROOM
        cdef ProducePartition* moved = <ProducePartition*>PyMem_RawRealloc(
            self.partitions, room * sizeof(ProducePartition))
        if moved == NULL:
            raise MemoryError(f"no memory for {room} partitions of a Produce request")
        self.partitions = moved
        self.partition_room = room
        return 0

    cdef void trim(self) noexcept:
        if self.topic_room > KEPT_ROOM:
            PyMem_RawFree(self.topics)
            self.topics = NULL
            self.topic_room = self.topic_count = 0
        if self.partition_room > KEPT_ROOM:
            PyMem_RawFree(self.partitions)
            self.partitions = NULL
            self.partition_room = self.partition_count = 0
