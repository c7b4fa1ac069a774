# The function that a producer's users call for each record: it goes from the call's arguments to
# the open batch without a Python frame. If it can't take a record at once, it calls a method of the
# subclass.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from kstore._fast.clients.accumulator cimport (
    OBSTACLE_GATE, OBSTACLE_TOPIC, RecordParts, TopicQueues,
)
from kstore._fast.clients.accumulator cimport Accumulator
from kstore._fast.clients.producer_batch cimport Delivery, ProducerBatch
from kstore._fast.record.builder cimport milliseconds

from time import time_ns

from kstore.errors import UnknownTopicOrPartitionError


cdef class SendPath:
    """The base class of producers. `send` puts its arguments into the open batch in one call."""

    def attach(self, Accumulator accumulator, bint plain):
        """Call this first. If `plain` is False, every record takes the subclass's path."""
        self.accumulator = accumulator
        self.plain = plain

    def send(self, topic, value=None, key=None, partition=None, timestamp=None, headers=None, *,
             offset=None, on_delivery=None):
        """Add a record, or a ProducerRecord, to the next batch for its partition. Without a
        `partition` the key's hash selects one (murmur2, as in Kafka), and records without a key are
        spread over the partitions. `timestamp` is in ms since 1970 (None: now). `offset` is for
        KIP-391: see ProducerRecord.

        Returns a Delivery: its `result()` waits for the record's offset or raises its error.
        `on_delivery(delivery)` is called when the record is delivered or has failed, in the thread
        of the producer's loop.

        Waits up to max.block.ms for the topic's metadata and for space in buffer.memory. Raises
        MessageTooLargeError for a record larger than max.request.size, and the broker's error for
        the topic.
        """
        cdef Delivery delivery
        if self.plain and type(topic) is str:
            delivery = self.accumulator.append(
                topic, value, key, partition, timestamp, headers, offset, on_delivery)
            if delivery is not None:
                return delivery
        return self._send_slowly(
            topic, value, key, partition, timestamp, headers, offset, on_delivery)

    def append(self, str topic, value, key, partition, timestamp, headers, offset, on_delivery):
        """The fast path only. None if it cannot be taken: `accumulator.obstacle` has the reason."""
        return self.accumulator.append(
            topic, value, key, partition, timestamp, headers, offset, on_delivery)

    def append_many(self, str topic, list values, list keys, int32_t partition, timestamp,
                    Py_ssize_t start, int64_t mark, list touched):
        """Append `values` from index `start` on. Returns the index of the first that was not
        accepted.
        """
        cdef Accumulator accumulator = self.accumulator
        cdef TopicQueues queues
        cdef Py_ssize_t i
        cdef RecordParts parts
        cdef int64_t moment
        cdef int32_t known
        cdef bint slow              # Python was called meanwhile
        cdef ProducerBatch batch
        moment = time_ns() // 1000000 if timestamp is None else milliseconds(timestamp)
        queues = open_topic(accumulator, topic)
        if queues is None:
            return start
        known = queues.count
        check_partition(queues, partition)
        parts.headers = parts.key = NULL
        parts.headers_size = parts.header_count = 0
        parts.key_size = -1
        parts.pinned = partition >= 0
        for i in range(start, len(values)):
            slow = False
            value = <object>PyList_GET_ITEM(values, i)
            key = None if keys is None else <object>PyList_GET_ITEM(keys, i)
            if accumulator.chooser is not None or not (
                    PyBytes_CheckExact(value) and (key is None or PyBytes_CheckExact(key))):
                made = accumulator.append(
                    topic, value, key, partition if partition >= 0 else None, moment, None, None,
                    None)
                if made is None:
                    return i
                batch = (<Delivery>made).batch
                slow = True
            else:
                parts.value = <const uint8_t*>PyBytes_AS_STRING(value)
                parts.value_size = PyBytes_GET_SIZE(value)
                if key is None:
                    parts.key_size = -1
                else:
                    parts.key = <const uint8_t*>PyBytes_AS_STRING(key)
                    parts.key_size = PyBytes_GET_SIZE(key)
                batch = accumulator.put(queues, partition, &parts, moment, -1)
                if batch is None:
                    accumulator.tell()
                    return i
            if batch.mark != mark:
                batch.mark = mark
                touched.append(batch)
            if (slow or accumulator.wake_wanted) and not go_on(accumulator, queues, known):
                return i + 1
        return len(values)

    def append_columns(self, str topic, Py_ssize_t count, tuple values, tuple keys,
                       uintptr_t timestamps, int32_t partition, Py_ssize_t start, int64_t mark,
                       list touched):
        """Like append_many, from Arrow's memory."""
        cdef Accumulator accumulator = self.accumulator
        cdef TopicQueues queues
        cdef RecordParts parts
        cdef Column value_column, key_column
        cdef bint keyed = keys is not None
        cdef int64_t moment = time_ns() // 1000000
        cdef int32_t known
        cdef Py_ssize_t i
        cdef ProducerBatch batch
        queues = open_topic(accumulator, topic)
        if queues is None:
            return start
        known = queues.count
        check_partition(queues, partition)
        read_column(values, &value_column)
        if keyed:
            read_column(keys, &key_column)
        parts.headers = parts.key = NULL
        parts.headers_size = parts.header_count = 0
        parts.key_size = -1
        parts.pinned = partition >= 0
        for i in range(start, count):
            parts.value_size = cell(&value_column, i, &parts.value)
            if keyed:
                parts.key_size = cell(&key_column, i, &parts.key)
            if timestamps:
                memcpy(&moment, <const uint8_t*>timestamps + 8 * i, 8)
            batch = accumulator.put(queues, partition, &parts, moment, -1)
            if batch is None:
                accumulator.tell()
                return i
            if batch.mark != mark:
                batch.mark = mark
                touched.append(batch)
            if accumulator.wake_wanted and not go_on(accumulator, queues, known):
                return i + 1
        return count


cdef struct Column:
    const uint8_t* validity
    const uint8_t* offsets
    int width
    const uint8_t* data
    Py_ssize_t first


cdef int read_column(tuple given, Column* column) except -1:
    column.validity = <const uint8_t*><uintptr_t>given[0]
    column.offsets = <const uint8_t*><uintptr_t>given[1]
    column.width = given[2]
    column.data = <const uint8_t*><uintptr_t>given[3]
    column.first = given[4]
    return 0


# The bytes of a row and their size; -1: null.
cdef inline Py_ssize_t cell(const Column* column, Py_ssize_t row, const uint8_t** data) noexcept:
    cdef int32_t[2] narrow
    cdef int64_t[2] wide
    row += column.first
    if column.validity != NULL and not (column.validity[row >> 3] >> (row & 7)) & 1:
        data[0] = NULL
        return -1
    if column.width == 4:
        memcpy(narrow, column.offsets + 4 * row, 8)
        data[0] = column.data + narrow[0]
        return narrow[1] - narrow[0]
    memcpy(wide, column.offsets + 8 * row, 16)
    data[0] = column.data + wide[0]
    return wide[1] - wide[0]


cdef TopicQueues open_topic(Accumulator accumulator, str topic):
    cdef TopicQueues queues = accumulator.topics.get(topic)
    if accumulator.gate is not None:
        accumulator.obstacle = OBSTACLE_GATE
        return None
    if queues is None or queues.count == 0:
        accumulator.obstacle = OBSTACLE_TOPIC
        return None
    return queues


# Wakes the sender. Returns whether the fast path may continue: the sender may have run meanwhile.
cdef bint go_on(Accumulator accumulator, TopicQueues queues, int32_t known) except -1:
    accumulator.tell()
    return accumulator.gate is None and queues.count == known


cdef int check_partition(TopicQueues queues, int32_t partition) except -1:
    if partition >= queues.count:
        raise UnknownTopicOrPartitionError(
            f"topic {queues.name!r} has partitions 0 to {queues.count - 1}, not {partition}")
    return 0
