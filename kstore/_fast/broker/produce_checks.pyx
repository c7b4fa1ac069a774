"""Why a batch of a Produce request is not appended: what its header, the topic's number of
partitions or the leader says against it.

It appends nothing and answers nothing; rights are looked at in produce_path.pyx, and what only the
log can refuse is refused there.
"""

from libc.stdint cimport uint8_t

from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, FENCED_LEADER_EPOCH, INVALID_PARTITION_COUNT, INVALID_RECORD, NONE,
    NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_COMPRESSION_TYPE)
from kstore._fast.log.producer_table cimport ProducerEntry
from kstore._fast.record.batch cimport (
    BATCH_BAD_MAGIC, BATCH_OK, BATCH_TRUNCATED, COMPRESSION_MASK, BatchInfo, check_batch,
    is_control, is_transactional, read_batch_header)

cdef enum:
    FIRST_ZSTD = 7
    ZSTD = 4


cdef int16_t check_records(
    WireBytes records, int version, bint in_transaction, bint use_offset
) noexcept nogil:
    """Exactly one batch of magic 2 per partition, from offset 0 (or from a given one), not a
    control batch, zstd only where the client may know it. What is wrong has the code that Kafka
    gives it, or KIP-391.
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
        return INVALID_RECORD if status == BATCH_OK and not use_offset else CORRUPT_MESSAGE
    if use_offset and (info.base_offset < 0 or info.last_offset_delta != info.records_count - 1):
        return CORRUPT_MESSAGE                      # records without offsets, or a gap among them
    if is_control(&info) or (info.base_offset != 0 and not use_offset):
        return INVALID_RECORD
    if is_transactional(&info) and not in_transaction:
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if version < FIRST_ZSTD and (info.attributes & COMPRESSION_MASK) == ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    return NONE


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


cdef int16_t check_count(TopicEntry entry, int64_t known_count) except -1:
    """Whether a producer that distributes over so many partitions may append (KIP-253); -1: it
    doesn't say. An expansion raises the count before the new partitions are there.
    """
    cdef Py_ssize_t count = entry.partition_count
    if known_count < 0:
        return POLICY_VIOLATION if entry.count_required else NONE
    if count < 0:
        count = len(entry.partitions)
    return NONE if known_count == count else INVALID_PARTITION_COUNT


cdef int16_t check_place(
    TopicEntry entry, Partition partition, WireBytes records, int64_t known_count
) except -1:
    """Whether the topic has the partition, and as many as the producer knows."""
    cdef int16_t error = check_count(entry, known_count)
    if error == INVALID_PARTITION_COUNT and partition is not None:
        # A refusal says that the batch is not in the log: who distributes its records anew would
        # double them otherwise. Only the leader knows.
        if not partition.online:
            return NOT_LEADER_OR_FOLLOWER
        if is_appended(partition, records):
            return NONE
    if error == NONE and partition is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    return error


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
    """Whether the producer's transaction is open on the partition already."""
    cdef ProducerEntry entry = partition.core.producers.entries.get(producer_id)
    return entry is not None and entry.txn_first_offset >= 0 and entry.producer_epoch == epoch


cdef int16_t check_leader(Partition partition, int64_t known_epoch) noexcept:
    """Whether this broker leads, as of the epoch that the producer knows (KIP-359; -1: none)."""
    if not partition.online:
        return NOT_LEADER_OR_FOLLOWER
    if known_epoch < 0 or known_epoch == partition.leader_epoch:
        return NONE
    return FENCED_LEADER_EPOCH if known_epoch < partition.leader_epoch else UNKNOWN_LEADER_EPOCH
