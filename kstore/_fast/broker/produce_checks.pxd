# The reasons why a batch of a Produce request is refused: Kafka's error codes, or NONE.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.broker.partition cimport Partition, TopicEntry
from kstore._fast.broker.produce_request cimport ProduceRequest
from kstore._fast.error_codes cimport (
    FENCED_LEADER_EPOCH, INVALID_PARTITION_COUNT, KAFKA_STORAGE_ERROR, NONE,
    INVALID_PRODUCER_ID_MAPPING, NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION)
from kstore._fast.log.append_plan cimport ORIGIN_CLIENT, ORIGIN_EXACT, ORIGIN_GIVEN_OFFSETS
from kstore._fast.protocol.wire cimport WireBytes
from kstore._fast.record.batch cimport BATCH_HEADER_SIZE, BATCH_PRODUCER_ID_AT
from kstore._fast.record.buffer cimport load_int64

cdef int16_t check_records(WireBytes records, ProduceRequest request) noexcept
# The same for batches that are stored unchanged, by a leader of this epoch, in a topic whose own
# producers have ids from this one on.
cdef int16_t check_exact(
    WireBytes records, int32_t leader_epoch, int64_t least_producer_id) noexcept nogil
# Finds the invalid records of a refused batch, as (index, words), added to found; returns their
# error code. keyed: the topic's records need keys.
cdef int16_t find_faults(
    Partition partition, WireBytes records, int16_t error, bint given_offsets, list found) except -1
# Whether the client is the one that may write to coordinators' topics in Kafka.
cdef bint is_admin(WireBytes client_id) noexcept
# Why a request is refused as a whole: rights for given offsets or for the transactional id.
cdef int16_t check_rights(object rights, object connection, ProduceRequest request) except -1
cdef bint may_write(
    object rights, object connection, bint by_id, WireBytes named, TopicEntry entry) except -1
cdef bint has_transactional(ProduceRequest request) noexcept
cdef bint has_transaction(Partition partition, int64_t producer_id, int16_t epoch) except -1
# Whether the log has the batch already, by its producer's sequence numbers.
cdef bint is_appended(Partition partition, WireBytes records) except -1


cdef inline bytes name_of(WireBytes name):
    return (<const char*>name.data)[:name.size]


cdef inline int origin_of(ProduceRequest request) noexcept:
    if request.exact:
        return ORIGIN_EXACT
    return ORIGIN_GIVEN_OFFSETS if request.use_offset else ORIGIN_CLIENT


cdef inline int16_t check_count(TopicEntry entry, int64_t known_count) except -1:
    """Whether a producer with this partition count may append (KIP-253); -1: it sends none. An
    expansion raises the count before the new partitions exist.
    """
    cdef Py_ssize_t count = entry.partition_count
    if known_count < 0:
        return POLICY_VIOLATION if entry.count_required else NONE
    if count < 0:
        count = len(entry.partitions)
    return NONE if known_count == count else INVALID_PARTITION_COUNT


cdef inline int16_t check_retired(
    TopicEntry entry, Partition partition, int64_t known_count
) noexcept:
    """Whether the partition accepts records: retiring partitions don't, with any count.
    """
    if partition is None or not 0 <= entry.retired_from <= partition.index:
        return NONE
    return POLICY_VIOLATION if known_count < 0 else INVALID_PARTITION_COUNT


cdef inline int16_t check_place(
    TopicEntry entry, Partition partition, WireBytes records, int64_t known_count, bint exact
) except -1:
    """Whether the topic has the partition, and the producer's count; whether an exact copy gets
    only another cluster's batches, and other topics get none; and that in a present or former copy
    the producer cannot be mistaken for one of the other cluster with the same id.
    """
    cdef int16_t error = POLICY_VIOLATION if entry.mirror != exact \
        else check_count(entry, known_count)
    if error == NONE:
        error = check_retired(entry, partition, known_count)
    if error == INVALID_PARTITION_COUNT and partition is not None:
        # A refusal means that the batch is not in the log; otherwise a producer that partitions its
        # records again would duplicate them. Only the leader knows.
        if not partition.online:
            return KAFKA_STORAGE_ERROR if partition.failed else NOT_LEADER_OR_FOLLOWER
        if is_appended(partition, records):
            return NONE
        if partition.core.queued:       # threads may still append an earlier attempt
            return REQUEST_TIMED_OUT
    if error == NONE and partition is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    if error == NONE and entry.least_producer_id > 0 and not exact \
            and records.size >= BATCH_HEADER_SIZE \
            and 0 <= load_int64(records.data + BATCH_PRODUCER_ID_AT) < entry.least_producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    return error


cdef inline int16_t check_leader(
    Partition partition, int64_t known_epoch, int64_t known_life
) noexcept:
    """Whether this broker leads in the producer's epoch (KIP-359; -1: none), and the partition is
    the intended one, not an earlier or later one of that name (KIP-232).
    """
    if not partition.online:
        return KAFKA_STORAGE_ERROR if partition.failed else NOT_LEADER_OR_FOLLOWER
    if known_life >= 0 <= partition.partition_epoch and known_life != partition.partition_epoch:
        return UNKNOWN_TOPIC_OR_PARTITION
    if known_epoch < 0 or known_epoch == partition.leader_epoch:
        return NONE
    return FENCED_LEADER_EPOCH if known_epoch < partition.leader_epoch else UNKNOWN_LEADER_EPOCH
