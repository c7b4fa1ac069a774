"""Why a batch of a Produce request is not appended: what its header, the topic's number of
partitions or the leader says against it.

It appends nothing and answers nothing; rights are looked at in produce_path.pyx, and what only the
log can refuse is refused there.
"""

from libc.stdint cimport uint8_t

from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, INVALID_RECORD, NONE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_COMPRESSION_TYPE)
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
