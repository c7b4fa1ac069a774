"""Produce, versions 3 to 13: the request is walked once to see that it is whole, then appended and
answered.

Records are validated and appended from the receive buffer itself. Who leads and what the log
refuses is decided elsewhere (the partition table, the log core); this module maps it to Kafka's
answer.
"""

from kstore._fast.batch cimport (
    BATCH_BAD_MAGIC, BATCH_OK, BATCH_TRUNCATED, COMPRESSION_MASK, BatchInfo, check_batch,
    is_control, is_transactional, read_batch_header)
from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, INVALID_RECORD, INVALID_REQUIRED_ACKS, KAFKA_STORAGE_ERROR, NONE,
    NOT_LEADER_OR_FOLLOWER, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_COMPRESSION_TYPE)
from kstore._fast.log_core cimport ORIGIN_CLIENT, AppendResult
from kstore._fast.partition_table cimport TopicEntry
from kstore._fast.wire cimport (
    put_count, put_int8, put_int16, put_int32, put_int64, put_no_tags, put_raw, put_string,
    read_bytes, read_count, read_int16, read_int32, read_raw, read_string, room, skip_tags)

cdef enum:
    FIRST_FLEXIBLE = 9
    FIRST_LOG_START_OFFSET = 5
    FIRST_ERROR_MESSAGE = 8
    FIRST_ZSTD = 7
    FIRST_CURRENT_LEADER = 10
    FIRST_TOPIC_ID = 13
    ZSTD = 4
    PARTITION_ANSWER_BYTES = 64


cdef inline WireBytes read_topic(WireReader* r, int version) noexcept:
    if version >= FIRST_TOPIC_ID:
        return read_raw(r, 16)
    return read_string(r, version >= FIRST_FLEXIBLE)


cdef bint is_whole(WireReader r, int version) noexcept nogil:
    """Walk the whole request by a copy of the reader: a truncated one must append nothing."""
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef Py_ssize_t topics = read_count(&r, flexible)
    cdef Py_ssize_t i, j, partitions
    for i in range(topics):
        if version >= FIRST_TOPIC_ID:
            read_raw(&r, 16)
        elif read_string(&r, flexible).size < 0:
            return False
        partitions = read_count(&r, flexible)
        for j in range(partitions):
            read_int32(&r)
            read_bytes(&r, flexible)
            skip_tags(&r, flexible)
            if r.bad:
                return False
        skip_tags(&r, flexible)
        if r.bad:
            return False
    skip_tags(&r, flexible)
    return not r.bad


cdef int16_t check_records(WireBytes records, int version, bint in_transaction) noexcept nogil:
    """Exactly one batch of magic 2 per partition, from offset 0, not a control batch, zstd only
    where the client may know it. What is wrong has the code that Kafka gives it.
    """
    cdef BatchInfo info
    cdef const uint8_t* end = records.data + records.size
    cdef int status
    if records.size <= 0:
        return INVALID_RECORD
    status = read_batch_header(records.data, end, &info)
    if status != BATCH_OK:
        if status == BATCH_TRUNCATED or (status == BATCH_BAD_MAGIC and records.data[16] < 2):
            return INVALID_RECORD
        return CORRUPT_MESSAGE
    if info.size_bytes != records.size:         # a second batch; or the first one's length is wrong
        status = check_batch(records.data, end, &info)
        return INVALID_RECORD if status == BATCH_OK else CORRUPT_MESSAGE
    if is_control(&info) or info.base_offset != 0:
        return INVALID_RECORD
    if is_transactional(&info) and not in_transaction:
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if version < FIRST_ZSTD and (info.attributes & COMPRESSION_MASK) == ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    return NONE


cdef class ProducePath:
    """The state that all produce requests share: the partitions, and the counters."""

    def __init__(self, PartitionTable table not None, report, *, bint durable=False):
        self.table = table
        self.durable = durable
        self.appended = []
        self.report = report

    cdef int handle(self, WireReader* r, int version, AnswerBuffer out) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef int acks
        cdef Py_ssize_t topics, i
        cdef int failures = 0
        self.in_transaction = read_string(r, flexible).size >= 0
        acks = read_int16(r)
        read_int32(r)                               # timeout: nothing waits for followers here
        if r.bad or not is_whole(r[0], version):
            return PRODUCE_MALFORMED
        self.requests += 1
        if self.durable:
            self.appended = []
        topics = read_count(r, flexible)
        room(out, 16)
        put_count(out, topics if topics > 0 else 0, flexible)
        for i in range(topics):
            failures += self.append_topic(r, version, acks, out)
        room(out, 8)
        put_int32(out, 0)                           # throttle time
        put_no_tags(out, flexible)
        if acks == 0:
            return PRODUCE_CLOSE if failures else PRODUCE_SILENT
        return PRODUCE_ANSWERED

    cdef int append_topic(self, WireReader* r, int version, int acks, AnswerBuffer out) except -1:
        """Append and answer one topic's partitions; returns how many failed."""
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef WireBytes topic = read_topic(r, version)
        cdef WireBytes records
        cdef TopicEntry entry
        cdef Partition partition
        cdef Py_ssize_t partitions = read_count(r, flexible)
        cdef Py_ssize_t j
        cdef int32_t index
        cdef int16_t error, unknown
        cdef int failures = 0
        cdef int64_t[3] offsets                     # base offset, log append time, log start offset
        room(out, topic.size + 16)
        if version >= FIRST_TOPIC_ID:
            entry = self.table.find_id(topic.data)
            unknown = UNKNOWN_TOPIC_ID
            put_raw(out, topic.data, 16)
        else:
            entry = self.table.find_name(topic.data, topic.size)
            unknown = UNKNOWN_TOPIC_OR_PARTITION
            put_string(out, topic.data, topic.size, flexible)
        put_count(out, partitions if partitions > 0 else 0, flexible)
        for j in range(partitions):
            index = read_int32(r)
            records = read_bytes(r, flexible)
            skip_tags(r, flexible)
            partition = None
            error = unknown
            offsets[0] = offsets[1] = offsets[2] = -1
            if entry is not None:
                error = UNKNOWN_TOPIC_OR_PARTITION
                if 0 <= index < len(entry.partitions):
                    partition = <Partition>entry.partitions[index]
            if partition is not None:
                if acks < -1 or acks > 1:
                    error = INVALID_REQUIRED_ACKS
                else:
                    error = self.append_one(partition, records, version, offsets)
            if error != NONE:
                failures += 1
            put_partition(out, version, index, error, offsets, partition)
        skip_tags(r, flexible)
        put_no_tags(out, flexible)
        return failures

    cdef int16_t append_one(
        self, Partition partition, WireBytes records, int version, int64_t* offsets
    ) except -1:
        cdef AppendResult result
        cdef int16_t error = check_records(records, version, self.in_transaction)
        if error != NONE:
            return error
        if not partition.online:
            return NOT_LEADER_OR_FOLLOWER
        try:
            partition.append(<uint8_t*>records.data, records.size, ORIGIN_CLIENT, &result)
        except OSError as problem:
            name = partition.entry.name.decode()
            self.report(f"cannot append to {name}-{partition.index}: {problem}")
            return KAFKA_STORAGE_ERROR
        self.batches += 1
        self.bytes_in += records.size
        if result.error_code == NONE:
            offsets[0] = result.base_offset
            offsets[1] = result.log_append_time_ms
            if self.durable:
                self.appended.append((partition.log, result.last_offset + 1))
        offsets[2] = result.log_start_offset
        return result.error_code


cdef int put_partition(
    AnswerBuffer out, int version, int32_t index, int16_t error, int64_t* offsets,
    Partition partition
) except -1:
    """One partition's answer; a client that asked the wrong broker is told the leader (KIP-951)."""
    cdef bint flexible = version >= FIRST_FLEXIBLE
    room(out, PARTITION_ANSWER_BYTES)
    put_int32(out, index)
    put_int16(out, error)
    put_int64(out, offsets[0])
    put_int64(out, offsets[1])
    if version >= FIRST_LOG_START_OFFSET:
        put_int64(out, offsets[2])
    if version >= FIRST_ERROR_MESSAGE:
        put_count(out, 0, flexible)                 # record errors
        put_string(out, NULL, -1, flexible)         # error message
    if error == NOT_LEADER_OR_FOLLOWER and version >= FIRST_CURRENT_LEADER:
        put_int8(out, 1)                            # one tagged field: 0, of 9 bytes
        put_int8(out, 0)
        put_int8(out, 9)
        put_int32(out, partition.leader_id)
        put_int32(out, partition.leader_epoch)
    put_no_tags(out, flexible)
    return 0
