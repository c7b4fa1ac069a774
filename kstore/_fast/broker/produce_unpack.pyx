"""Which batches of a Produce request a thread has to look into before they are appended: those that
claim to hold much, and those that come when the turn has decompressed enough.

Batches that are refused without a look (no right, no leader here, too large) are not among them.
"""

from libc.stdint cimport int32_t

from kstore._fast.record.batch cimport (
    BATCH_BAD_OFFSET_DELTA, BATCH_HEADER_SIZE, BATCH_OK, COMPRESSION_MASK, BatchInfo, is_compressed,
    read_batch_header, validate_batch, validate_compressed)
from kstore._fast.record.compression cimport MAX_DECOMPRESSED_BYTES
from kstore._fast.broker.partition_table cimport Partition, TopicEntry
from kstore._fast.broker.rights cimport MAY_WRITE, topic_rights
from kstore._fast.record.unpack cimport AT_ONCE_BYTES, Verdict, claimed_bytes, max_unpacked_bytes
from kstore._fast.protocol.wire cimport (
    WireBytes, read_bytes, read_count, read_int32, read_topic, skip_tags)

cdef enum:
    FIRST_FLEXIBLE = 9
    FIRST_TOPIC_ID = 13
    LEAST_WORK_BYTES = 1024         # what one look costs at least


cdef list find_packed(
    PartitionTable table, WireReader r, int version, object rights, dict verdicts,
    int64_t* budget
):
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef bint by_id = version >= FIRST_TOPIC_ID
    cdef Py_ssize_t topics = read_count(&r, flexible)
    cdef Py_ssize_t partitions, i, j
    cdef Py_ssize_t place = -1
    cdef WireBytes topic, records
    cdef TopicEntry entry
    cdef int32_t index
    cdef int64_t work
    cdef list found = None
    for i in range(topics):
        topic = read_topic(&r, by_id, flexible)
        entry = table.find_id(topic.data) if by_id else table.find_name(topic.data, topic.size)
        if entry is not None and rights is not None \
                and not topic_rights(rights, entry.name) & MAY_WRITE:
            entry = None
        partitions = read_count(&r, flexible)
        for j in range(partitions):
            index = read_int32(&r)
            records = read_bytes(&r, flexible)
            skip_tags(&r, flexible)
            place += 1
            if entry is None or not 0 <= index < len(entry.partitions):
                continue
            if verdicts is not None and place in verdicts:
                continue
            partition = <Partition>entry.partitions[index]
            work = work_of(partition, records)
            if work > AT_ONCE_BYTES or work > budget[0]:
                found = found or []
                found.append((
                    place, (<const char*>records.data)[:records.size],
                    max_unpacked_bytes(records.size, partition.core.plan.max_message_bytes),
                    partition.stored_codec, partition.stored_level))
            else:
                budget[0] -= work
        skip_tags(&r, flexible)
    return found


cdef int64_t work_of(Partition partition, WireBytes records) except -1:
    """How many bytes a look at the batch goes through, at most; 0: none is needed."""
    cdef BatchInfo info
    cdef int64_t claimed
    cdef int codec
    if partition is None or not partition.online or records.size <= BATCH_HEADER_SIZE \
            or records.size > partition.core.plan.max_message_bytes:
        return 0
    if read_batch_header(records.data, records.data + records.size, &info) != BATCH_OK \
            or info.size_bytes != records.size:
        return 0
    codec = info.attributes & COMPRESSION_MASK
    if not is_compressed(&info):
        return records.size if partition.stored_codec > 0 else 0
    claimed = claimed_bytes(
        codec, records.data + BATCH_HEADER_SIZE, records.size - BATCH_HEADER_SIZE)
    if claimed < 0:                         # what is broken may hold anything
        return AT_ONCE_BYTES + 1
    return max(claimed, LEAST_WORK_BYTES, <int64_t>records.size)


cdef bint has_gaps(WireBytes records, Verdict seen) except -1:
    """Whether a refused batch's records have other offsets than consecutive ones."""
    cdef BatchInfo info
    cdef int status = validate_batch(records.data, records.data + records.size, &info)
    if status == BATCH_OK and is_compressed(&info):
        if seen is not None and seen.status >= 0:
            status = seen.status
        else:
            status = validate_compressed(
                records.data, &info, MAX_DECOMPRESSED_BYTES if seen is None else seen.max_bytes)
    return status == BATCH_BAD_OFFSET_DELTA
