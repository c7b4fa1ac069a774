"""The reasons why a batch of a Produce request is refused: its header, the topic's number of
partitions, the leader or the client's rights; and the invalid records if the log refused it.

It appends nothing and answers nothing.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from kstore._fast.broker.rights cimport (
    CLUSTER, MAY_GIVE_OFFSETS, MAY_WRITE, PRODUCE_REQUEST, TOPIC, TRANSACTIONAL_ID, note_denied,
    topic_rights,
)
from kstore._fast.error_codes cimport (
    CLUSTER_AUTHORIZATION_FAILED, CORRUPT_MESSAGE, INVALID_PRODUCER_ID_MAPPING, INVALID_RECORD,
    INVALID_TIMESTAMP, NONE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_COMPRESSION_TYPE)
from kstore._fast.log.append_plan cimport NO_LIMIT, AppendPlan
from kstore._fast.log.batch_facts cimport FAULT_NO_KEY, FAULT_TIME_TYPE, TimeRange, record_faults
from kstore._fast.log.producer_table cimport ProducerEntry
from kstore._fast.record.batch cimport (
    BATCH_BAD_MAGIC, BATCH_BAD_TIMESTAMP, BATCH_LENGTH_AT, BATCH_MAGIC_AT, BATCH_OK,
    BATCH_PREFIX_SIZE, BATCH_TRUNCATED, COMPRESSION_MASK, BatchInfo, check_batch, is_compressed,
    is_control, is_log_append_time, is_transactional, read_batch_header, validate_batch,
    validate_compressed)
from kstore._fast.record.buffer cimport load_int32
from kstore._fast.record.unpack cimport AT_ONCE_BYTES

cdef enum:
    FIRST_ZSTD = 7
    ZSTD = 4
    LEAST_LENGTH = 14               # of a batch of any format, after its length
    MOST_FAULTS = 1000              # records that an answer names

cdef const char* ADMIN = b"__admin_client"

cdef extern from *:
    const int64_t NO_TIME "INT64_MIN"


cdef int16_t check_records(WireBytes records, ProduceRequest request) noexcept:
    """Exactly one batch of magic 2 per partition, from offset 0, not a control batch, zstd only
    if the client can know it. Errors have Kafka's codes.
    """
    cdef BatchInfo info
    cdef const uint8_t* end = records.data + records.size
    cdef int status
    if records.size <= 0:
        return INVALID_RECORD
    if request.use_offset:
        return check_given(records, request)
    status = read_batch_header(records.data, end, &info)
    if status != BATCH_OK:
        if status == BATCH_TRUNCATED or (status == BATCH_BAD_MAGIC and records.data[16] < 2):
            return INVALID_RECORD
        return CORRUPT_MESSAGE
    if request.version < FIRST_ZSTD and (info.attributes & COMPRESSION_MASK) == ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    if info.size_bytes != records.size:
        return check_second(records.data, records.data + info.size_bytes, end)
    if is_control(&info) or info.base_offset != 0:
        return INVALID_RECORD
    if is_transactional(&info) and not request.in_transaction:
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return NONE


cdef int16_t check_given(WireBytes records, ProduceRequest request) noexcept:
    """One batch with given offsets (KIP-391); or several that are quick to check and have no
    sequence numbers.
    """
    cdef BatchInfo info
    cdef const uint8_t* p = records.data
    cdef const uint8_t* end = records.data + records.size
    cdef int status
    while p < end:
        status = read_batch_header(p, end, &info)
        if status != BATCH_OK:
            return INVALID_RECORD if p == records.data and (status == BATCH_TRUNCATED or (
                status == BATCH_BAD_MAGIC and p[BATCH_MAGIC_AT] < 2)) else CORRUPT_MESSAGE
        if info.base_offset < 0 or info.last_offset_delta != info.records_count - 1:
            return CORRUPT_MESSAGE                  # records without offsets, or a gap among them
        if info.size_bytes != records.size and (is_compressed(&info) or info.producer_id >= 0):
            return CORRUPT_MESSAGE
        if is_control(&info):
            return INVALID_RECORD
        if is_transactional(&info) and not request.in_transaction:
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        p += info.size_bytes
    return NONE


cdef int16_t check_exact(
    WireBytes records, int32_t leader_epoch, int64_t least_producer_id
) noexcept nogil:
    """Complete consecutive batches, with leader epochs and producer ids below those of this
    cluster, so that later ones are never equal to the source's.
    """
    cdef BatchInfo info
    cdef const uint8_t* p = records.data
    cdef const uint8_t* end = records.data + records.size
    if records.size <= 0:
        return INVALID_RECORD
    while p < end:
        if read_batch_header(p, end, &info) != BATCH_OK or info.base_offset < 0:
            return CORRUPT_MESSAGE
        if not -1 <= info.records_count - 1 <= info.last_offset_delta or info.last_offset_delta < 0:
            return CORRUPT_MESSAGE                  # the log end would decrease or be unreadable
        if info.partition_leader_epoch >= leader_epoch:
            return UNKNOWN_LEADER_EPOCH
        if info.producer_id >= 0 and info.producer_id >= least_producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        p += info.size_bytes
    return NONE


cdef int16_t check_second(
    const uint8_t* first, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    """The bytes after the first batch: another batch, or something else. Kafka silently drops a
    partial batch; here it is refused, since records may be lost.
    """
    cdef BatchInfo info
    if end - p >= BATCH_PREFIX_SIZE:
        if load_int32(p + BATCH_LENGTH_AT) < LEAST_LENGTH:
            return CORRUPT_MESSAGE
        if end - p > BATCH_MAGIC_AT:
            if p[BATCH_MAGIC_AT] > 2:
                return CORRUPT_MESSAGE
            if load_int32(p + BATCH_LENGTH_AT) <= end - p - BATCH_PREFIX_SIZE:
                return INVALID_RECORD
    return INVALID_RECORD if check_batch(first, p, &info) == BATCH_OK else CORRUPT_MESSAGE


cdef bint is_admin(WireBytes client_id) noexcept:
    return client_id.size == len(ADMIN) and memcmp(client_id.data, ADMIN, len(ADMIN)) == 0


cdef int16_t check_rights(object rights, object connection, ProduceRequest request) except -1:
    if request.use_offset and not rights.cluster & MAY_GIVE_OFFSETS:
        note_denied(
            connection, PRODUCE_REQUEST, MAY_GIVE_OFFSETS, CLUSTER, b"kafka-cluster")
        return CLUSTER_AUTHORIZATION_FAILED
    if not request.in_transaction:
        return NONE
    name = name_of(request.transactional_id)
    mask = rights.mask(TRANSACTIONAL_ID, name.decode("utf-8", "replace"))
    if mask & MAY_WRITE or not has_transactional(request):
        return NONE
    note_denied(connection, PRODUCE_REQUEST, MAY_WRITE, TRANSACTIONAL_ID, name)
    return TRANSACTIONAL_ID_AUTHORIZATION_FAILED


cdef bint may_write(
    object rights, object connection, bint by_id, WireBytes named, TopicEntry entry
) except -1:
    """Whether the client may write to the topic. For an unknown id, the error says that."""
    if rights is None or entry is None and by_id:
        return True
    name = name_of(named) if entry is None else entry.name
    if topic_rights(rights, name) & MAY_WRITE:
        return True
    note_denied(connection, PRODUCE_REQUEST, MAY_WRITE, TOPIC, name)
    return False


cdef int16_t find_faults(
    Partition partition, WireBytes records, int16_t error, bint given_offsets, list found
) except -1:
    """A refused timestamp is reported before a missing key, as in Kafka."""
    cdef AppendPlan plan = partition.core.plan
    cdef BatchInfo info
    cdef TimeRange times
    cdef int64_t now = partition.core.now_ms()
    cdef int status = validate_batch(records.data, records.data + records.size, &info)
    if status == BATCH_OK and is_compressed(&info):
        status = validate_compressed(records.data, &info, AT_ONCE_BYTES)
    if (status != BATCH_OK and status != BATCH_BAD_TIMESTAMP) or is_control(&info):
        return error
    times.fixed = is_log_append_time(&info)
    times.refused = times.fixed and (plan.log_append_time or info.max_timestamp == -1)
    times.least_ms, times.most_ms = NO_TIME, NO_LIMIT
    if not plan.log_append_time and plan.before_max_ms != NO_LIMIT:
        times.least_ms = now - plan.before_max_ms
    if not plan.log_append_time and plan.after_max_ms < NO_LIMIT - now:
        times.most_ms = now + plan.after_max_ms
    for index, fault, timestamp in record_faults(
            records.data, &info, plan.compacted and not given_offsets, &times, AT_ONCE_BYTES):
        if fault != FAULT_NO_KEY:
            error = INVALID_TIMESTAMP
        if len(found) < MOST_FAULTS:
            found.append((index, fault_words(fault, timestamp, &times)))
    return error


cdef bytes fault_words(int fault, int64_t timestamp, const TimeRange* times):
    if fault == FAULT_NO_KEY:
        text = "The topic is compacted: give the record a key"
    elif fault == FAULT_TIME_TYPE:
        text = "Only the broker sets the append time: send the record with its time of creation"
    else:
        text = (
            f"The record's timestamp {timestamp} is outside of {times.least_ms} to "
            f"{times.most_ms}, the limits of the topic (message.timestamp.before.max.ms and "
            "message.timestamp.after.max.ms)")
    return text.encode()


cdef bint has_transactional(ProduceRequest request) noexcept:
    """Whether any batch of a request belongs to a transaction."""
    cdef BatchInfo info
    cdef WireBytes records
    cdef Py_ssize_t i
    for i in range(request.partition_count):
        records = request.partitions[i].records
        if records.size > 0 and read_batch_header(
                records.data, records.data + records.size, &info) == BATCH_OK \
                and is_transactional(&info):
            return True
    return False


cdef bint is_appended(Partition partition, WireBytes records) except -1:
    """Whether the log has the batch already, by its producer's sequence numbers."""
    cdef BatchInfo info
    cdef ProducerEntry entry
    if records.size <= 0 or read_batch_header(
            records.data, records.data + records.size, &info) != BATCH_OK:
        return False
    entry = partition.core.producers.entries.get(info.producer_id)
    return entry is not None and entry.find_duplicate(&info) != NULL


cdef bint has_transaction(Partition partition, int64_t producer_id, int16_t epoch) except -1:
    """Whether the producer's transaction is open on the partition already, and no marker that ends
    it is on the way to the log.
    """
    cdef ProducerEntry entry
    if partition.ending is not None and producer_id in partition.ending:
        return False
    entry = partition.core.producers.entries.get(producer_id)
    return entry is not None and entry.txn_first_offset >= 0 and entry.producer_epoch == epoch
