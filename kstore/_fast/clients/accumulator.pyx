# Collects a producer's records: each is encoded at once into the open batch of its partition.
# append() runs in the users' threads and never waits. If it can't take a record, it says why in
# `obstacle`. It knows no network and no sequence numbers.
# The GIL is its lock: no other thread runs between two Python bytecodes. So no function may call
# Python while a record is half appended. The loop is woken afterwards (tell).

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from kstore._fast.record.batch cimport BATCH_HEADER_SIZE
from kstore._fast.record.builder cimport milliseconds
from kstore._fast.record.memory cimport MemoryView, view_of
from kstore._fast.record.murmur2 cimport hash_bytes, jump_hash
from kstore._fast.clients.producer_batch cimport Delivery, ProducerBatch, delivery_of

from kstore._fast.record.builder import encode_headers, header_rows
from kstore.errors import MessageTooLargeError, UnknownTopicOrPartitionError

cdef enum:
    FIRST_ROOM = 2048               # the first size of a RecordBatchBuilder
    # length, attributes, two deltas and three sizes, at their longest
    RECORD_OVERHEAD = 36
    SPARES = 64
    SPARE_BYTES = 8388608           # memory kept for the next batches


cdef inline int64_t clock_ms(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef class PartitionQueue:
    def __init__(self, str topic, int32_t partition):
        self.topic = topic
        self.partition = partition
        self.closed = deque()

    def wait_ms(self, int64_t now_ms, int64_t linger_ms):
        """How long the first batch will linger; 0: it may be sent; -1: there is none."""
        if self.closed:
            return 0
        if self.open is None:
            return -1
        if self.hurried:
            return 0
        return max(0, self.open.created_ms + linger_ms - now_ms)

    def first(self):
        """The next batch to send, which may still be open; None: there is none."""
        return self.closed[0] if self.closed else self.open


cdef class TopicQueues:
    def __init__(self, str name):
        self.name = name
        self.partitions = []


cdef class Accumulator:
    def __init__(self, *, Py_ssize_t batch_size, Py_ssize_t memory_bytes,
                 Py_ssize_t max_request_size, int compression=0, int level=-1, int partitioner=0,
                 chooser=None, uint64_t seed=1):
        self.batch_size = batch_size
        self.memory_bytes = memory_bytes
        self.max_request_size = max_request_size
        self.compression = compression
        self.level = level
        self.partitioner = partitioner
        self.chooser = chooser
        self.topics = {}
        self.incomplete = set()
        self.active = set()
        self.random_state = seed | 1

    def __dealloc__(self):
        while self.spares:
            self.spares -= 1
            PyMem_RawFree(self.spare[self.spares])

    # -- for the sender

    def set_partitions(self, str name, int32_t count):
        """Set the topic's number of partitions; 0: its records must wait. Returns its queues."""
        cdef TopicQueues topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
            topic.sticky = -1
        while len(topic.partitions) < count:
            topic.partitions.append(PartitionQueue(name, len(topic.partitions)))
        topic.count = count
        topic.weights = topic.choices = None
        return topic.partitions

    def set_choices(self, str name, list choices, list weights):
        """The partitions for records without a key, with running sums of their weights."""
        cdef TopicQueues topic = self.topics[name]
        topic.choices = choices
        topic.weights = weights

    def backlog(self, str name):
        """The number of batches that wait to be sent, by partition. Empty: no record without a key
        was appended yet.
        """
        cdef TopicQueues topic = self.topics[name]
        if topic.sticky < 0 or topic.count < 2:
            return []
        return [len((<PartitionQueue>topic.partitions[i]).closed) for i in range(topic.count)]

    def partition_count(self, str name):
        cdef TopicQueues topic = self.topics.get(name)
        return 0 if topic is None else topic.count

    def queues(self, str name):
        cdef TopicQueues topic = self.topics.get(name)
        return [] if topic is None else topic.partitions

    def topic_names(self):
        return list(self.topics)

    def close_all(self):
        for queue in list(self.active):
            self.close_open(queue)

    def hurry(self, PartitionQueue queue):
        """A caller waits for the queue's open batch: it must not linger."""
        if queue.open is not None and not queue.hurried and not self.patient:
            queue.hurried = True
            self.wake_wanted = True
            self.tell()

    def take(self, PartitionQueue queue):
        """The queue's next batch; None: it is empty."""
        cdef ProducerBatch batch
        if queue.closed:
            batch = queue.closed.popleft()
        else:
            batch = queue.open
            queue.open = None
            queue.hurried = False
            if batch is not None:
                queue.fills = batch.size_bytes * 2 > self.batch_size
        if queue.open is None and not queue.closed:
            self.active.discard(queue)
        return batch

    def give_back(self, ProducerBatch batch):
        """Called by a completed batch: its memory is free."""
        self.incomplete.discard(batch)
        self.used_bytes -= batch.accounted
        batch.accounted = 0
        if (batch.room == self.batch_size > FIRST_ROOM and not batch.exports
                and self.spares < SPARES and self.spares * self.batch_size < SPARE_BYTES):
            self.spare[self.spares] = batch.data
            self.spares += 1
            batch.data = NULL
            batch.room = batch.size_bytes = 0
        elif not batch.exports:
            PyMem_RawFree(batch.data)
            batch.data = NULL
            batch.room = batch.size_bytes = 0
        if self.on_room is not None:
            self.on_room()

    # -- for users

    # Wakes the loop if that is necessary. It calls Python, so other threads may run meanwhile:
    # nothing may be half done.
    cdef int tell(self) except -1:
        if self.wake_wanted:
            self.wake_wanted = False
            if not self.woken and not self.quiet and self.wake is not None:
                self.woken = True
                self.wake()
        return 0

    cdef int close_open(self, PartitionQueue queue) except -1:
        if queue.open is not None:
            queue.closed.append(queue.open)
            queue.open = None
            queue.hurried = False
        return 0

    cdef int next_sticky(self, TopicQueues topic) except -1:
        cdef uint32_t draw
        cdef Py_ssize_t i
        self.random_state ^= self.random_state << 13
        self.random_state ^= self.random_state >> 7
        self.random_state ^= self.random_state << 17
        draw = <uint32_t>(self.random_state >> 32)
        topic.sticky_bytes = 0
        if not topic.choices:
            topic.sticky = draw % topic.count
        elif topic.weights is None:
            topic.sticky = topic.choices[draw % len(topic.choices)]
        else:
            draw = draw % <uint32_t>topic.weights[len(topic.weights) - 1]
            for i in range(len(topic.weights)):
                if draw < <uint32_t>topic.weights[i]:
                    topic.sticky = topic.choices[i]
                    break
        if topic.sticky >= topic.count:
            topic.sticky = draw % topic.count
        return 0

    cdef int choose(self, TopicQueues topic, RecordParts* parts) except -1:
        cdef PartitionQueue queue
        if parts.key_size >= 0 and self.partitioner != BY_STICKINESS:
            if self.partitioner == BY_JUMP_HASH:
                return jump_hash(hash_bytes(parts.key, parts.key_size), topic.count)
            return (hash_bytes(parts.key, parts.key_size) & 0x7FFFFFFFU) % topic.count
        if topic.sticky < 0 or topic.sticky >= topic.count:
            self.next_sticky(topic)
        elif topic.sticky_bytes >= self.batch_size and topic.count > 1:
            queue = <PartitionQueue>topic.partitions[topic.sticky]
            if (queue.open is None or topic.sticky_bytes >= 2 * self.batch_size
                    or queue.open.room - queue.open.size_bytes < 2 * RECORD_OVERHEAD
                    + parts.value_size):
                self.next_sticky(topic)
        return topic.sticky

    cdef ProducerBatch begin(
        self, TopicQueues topic, PartitionQueue queue, Py_ssize_t need, int64_t offset
    ):
        cdef ProducerBatch batch
        cdef Py_ssize_t room = min(<Py_ssize_t>FIRST_ROOM, self.batch_size)
        if need > self.batch_size - BATCH_HEADER_SIZE:
            room = BATCH_HEADER_SIZE + need
        elif queue.fills or need > room - BATCH_HEADER_SIZE:
            room = self.batch_size
        if self.used_bytes + room > self.memory_bytes:
            if room > self.memory_bytes:
                raise MessageTooLargeError(
                    f"a record of {need} bytes does not fit in buffer.memory {self.memory_bytes}")
            self.obstacle = OBSTACLE_MEMORY
            return None
        batch = ProducerBatch.__new__(ProducerBatch)
        if room == self.batch_size and self.spares:
            self.spares -= 1
            PyMem_RawFree(batch.data)
            batch.data = self.spare[self.spares]
            batch.room = room
        elif room > FIRST_ROOM:
            batch.grow(room)
        else:
            batch.room = room
        batch.topic = queue.topic
        batch.partition = queue.partition
        batch.queue = queue
        batch.owner = self
        batch.partition_count = topic.count
        batch.compression = self.compression
        batch.level = self.level
        batch.first_offset = offset
        batch.created_ms = clock_ms(CLOCK_MONOTONIC)
        batch.accounted = room
        self.used_bytes += room
        self.batches_begun += 1
        batch.number = self.batches_begun
        self.incomplete.add(batch)
        self.active.add(queue)
        self.close_open(queue)  # another thread may have run during a garbage collection
        queue.open = batch
        if not self.timed:
            self.timed = self.wake_wanted = True
        return batch

    # The open batch with room for a record, or a new one; None: there is an obstacle.
    cdef ProducerBatch batch_for(
        self, TopicQueues topic, PartitionQueue queue, Py_ssize_t need, int64_t offset, bint pinned
    ):
        cdef ProducerBatch batch = queue.open
        cdef Py_ssize_t room
        cdef int mode = 1 if offset < 0 else 2
        if queue.offset_mode != mode:
            if queue.offset_mode:
                raise ValueError(
                    f"partition {queue.topic}-{queue.partition}: records with given offsets and "
                    "records without cannot be mixed (KIP-391)")
            queue.offset_mode = mode
        if batch is not None and batch.pinned == pinned and (
                offset < 0 or offset == batch.first_offset + batch.count):
            if need <= batch.room - batch.size_bytes:
                return batch
            if batch.size_bytes + need <= self.batch_size:
                room = min(max(batch.room * 2, batch.size_bytes + need), self.batch_size)
                if self.used_bytes + room - batch.accounted > self.memory_bytes:
                    self.obstacle = OBSTACLE_MEMORY
                    return None
                batch.grow(room)
                self.used_bytes += room - batch.accounted
                batch.accounted = room
                return batch
        if batch is not None:
            queue.fills = offset < 0
            self.close_open(queue)
            self.wake_wanted = True
        batch = self.begin(topic, queue, need, offset)
        if batch is not None:
            batch.pinned = pinned
        return batch

    cdef ProducerBatch put(self, TopicQueues topic, int32_t partition, RecordParts* parts,
                           int64_t timestamp, int64_t offset):
        cdef Py_ssize_t need = (
            RECORD_OVERHEAD + parts.headers_size + (parts.key_size if parts.key_size > 0 else 0)
            + (parts.value_size if parts.value_size > 0 else 0))
        cdef ProducerBatch batch
        cdef bint stuck = partition < 0 and (
            parts.key_size < 0 or self.partitioner == BY_STICKINESS)
        if need + BATCH_HEADER_SIZE - RECORD_OVERHEAD > self.max_request_size:
            raise MessageTooLargeError(
                f"a record of {need - RECORD_OVERHEAD} bytes is above max.request.size "
                f"{self.max_request_size}")
        if partition < 0:
            partition = self.choose(topic, parts)
        batch = self.batch_for(
            topic, <PartitionQueue>PyList_GET_ITEM(topic.partitions, partition), need, offset,
            parts.pinned)
        if batch is None:
            return None
        if stuck:
            topic.sticky_bytes += need
        batch.append_memory(
            parts.key, parts.key_size, parts.value, parts.value_size, timestamp, parts.headers,
            parts.headers_size, parts.header_count)
        return batch

    # The topic's queues; None: the topic is unknown.
    cdef TopicQueues look_up(self, object name):
        cdef PyObject* found
        if name is not self.last_name:
            found = PyDict_GetItem(self.topics, name)
            if found == NULL:
                return None
            self.last_name = name
            self.last_queues = <TopicQueues>found
        return self.last_queues

    cdef Delivery append(self, object topic, object value, object key, object partition,
                         object timestamp, object headers, object offset, object on_delivery,
                         bint passes=False):
        cdef TopicQueues queues = self.look_up(topic)
        cdef RecordParts parts
        cdef object value_held, key_held
        cdef bytes encoded
        cdef int32_t known = 0 if queues is None else queues.count
        cdef int32_t index = -1
        cdef int64_t given = -1
        cdef int64_t moment
        cdef ProducerBatch batch
        cdef Delivery delivery
        value_held = lay_open(value, "value", &parts.value, &parts.value_size)
        key_held = lay_open(key, "key", &parts.key, &parts.key_size)
        parts.headers = NULL
        parts.headers_size = parts.header_count = 0
        if headers is not None and headers:
            headers = header_rows(headers)
            encoded = encode_headers(headers)
            parts.headers = <const uint8_t*>PyBytes_AS_STRING(encoded)
            parts.headers_size = PyBytes_GET_SIZE(encoded)
            parts.header_count = len(headers)
        moment = clock_ms(CLOCK_REALTIME) if timestamp is None else milliseconds(timestamp)
        parts.pinned = partition is not None
        if offset is not None:
            given = offset
            if given < 0:
                raise ValueError(f"the offset {given} is negative")
        if partition is not None:
            index = partition
        elif self.chooser is not None and known:
            index = self.chooser(topic, key, value, known)
        # No Python from here on. The sender may have run during the calls above.
        if self.gate is not None and not passes:
            self.obstacle = OBSTACLE_GATE
            return None
        if known == 0 or queues.count != known:
            self.obstacle = OBSTACLE_TOPIC
            return None
        if partition is not None or self.chooser is not None:
            if not 0 <= index < known:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} has partitions 0 to {known - 1}, not {index}")
        batch = self.put(queues, index, &parts, moment, given)
        if batch is None:
            self.tell()
            return None
        delivery = delivery_of(batch, batch.count - 1)
        if on_delivery is not None:
            batch.add_callback(batch.count - 1, on_delivery)
        if self.wake_wanted:
            self.tell()
        return delivery

    def append_again(self, ProducerBatch origin, record):
        """Append a record of another batch to its new partition (KIP-253), even over the memory
        limit.

        The partition stays the same if the user chose it or the record has no key. Returns (batch,
        index).
        """
        cdef Py_ssize_t limit = self.memory_bytes
        cdef bint stays = origin.pinned or record.key is None
        cdef Delivery delivery
        self.memory_bytes = 0x7FFFFFFFFFFFFFFF
        try:
            delivery = self.append(
                origin.topic, record.value, record.key, origin.partition if stays else None,
                record.timestamp, record.headers,
                record.offset if origin.first_offset >= 0 else None, None, True)
        finally:
            self.memory_bytes = limit
        if delivery.index == 0:
            delivery.batch.created_ms = origin.created_ms
        return delivery.batch, delivery.index

    def split(self, ProducerBatch batch, records, Py_ssize_t limit):
        """Split a batch into batches of at most limit bytes (or one record) each, in order.

        Returns the new batches. The old batch is done, and its deliveries follow the records.
        """
        cdef PartitionQueue queue = batch.queue
        cdef PartitionQueue apart = PartitionQueue(queue.topic, queue.partition)
        cdef TopicQueues topic = self.topics[queue.topic]
        cdef Py_ssize_t memory_bytes = self.memory_bytes
        cdef Py_ssize_t batch_size = self.batch_size
        cdef ProducerBatch part
        cdef list places = []
        self.memory_bytes = 0x7FFFFFFFFFFFFFFF
        self.batch_size = limit
        try:
            for record in records:
                headers = encode_headers(record.headers)
                need = (RECORD_OVERHEAD + len(headers) + len(record.key or b"")
                        + len(record.value or b""))
                offset = record.offset if batch.first_offset >= 0 else -1
                part = self.batch_for(topic, apart, need, offset, batch.pinned)
                part.append_objects(record.value, record.key, record.timestamp, record.headers)
                places.append((part, part.count - 1))
        finally:
            self.memory_bytes = memory_bytes
            self.batch_size = batch_size
        self.close_open(apart)
        self.active.discard(apart)
        parts = list(apart.closed)
        for part in parts:
            part.queue = queue
            part.number = batch.number
            part.created_ms = batch.created_ms
            part.partition_count = batch.partition_count
        batch.move(places)
        return parts


# Finds the bytes of a key or value. Returns the object that holds them there, if it is not the
# value itself.
cdef inline object lay_open(
    object part, str what, const uint8_t** data, Py_ssize_t* size
):
    cdef MemoryView view
    if PyBytes_CheckExact(part):
        data[0] = <const uint8_t*>PyBytes_AS_STRING(part)
        size[0] = PyBytes_GET_SIZE(part)
        return None
    if part is None:
        data[0] = NULL
        size[0] = -1
        return None
    view = bytes_of(part, what)
    data[0] = view.data
    size[0] = view.size
    return view


cdef MemoryView bytes_of(object part, str what):
    if isinstance(part, str):
        raise TypeError(f"a record's {what} is str: pass bytes-like or None (encode text first)")
    try:
        return view_of(part)
    except TypeError:
        raise TypeError(f"a record's {what} is {type(part).__name__}: pass bytes-like or None "
                        "(encode text first)") from None
