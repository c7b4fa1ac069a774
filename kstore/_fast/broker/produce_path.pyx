"""Produce, versions 3 to 13: the request is walked once to see that it is whole, then appended and
answered.

Records are validated and appended from the receive buffer itself. Who leads and what the log
refuses is decided elsewhere (the partition table, the log core); this module maps it to Kafka's
answer. Three tagged fields are kstore's own: the leader epoch that a producer knows (KIP-359), the
topic's number of partitions (KIP-253) and the use of given offsets (KIP-391).
"""

from cpython.bytearray cimport PyByteArray_AS_STRING

from kstore._fast.record.batch cimport (
    BATCH_ATTRIBUTES_AT, BATCH_BAD_MAGIC, BATCH_HEADER_SIZE, BATCH_OK, BATCH_TOO_LARGE,
    BATCH_TRUNCATED, COMPRESSION_MASK, BatchInfo, check_batch, is_control, is_transactional,
    read_batch_header)
from kstore._fast.record.compression cimport MAX_DECOMPRESSED_BYTES
from kstore._fast.error_codes cimport (
    CLUSTER_AUTHORIZATION_FAILED, CORRUPT_MESSAGE, FENCED_LEADER_EPOCH, INVALID_PARTITION_COUNT,
    INVALID_PRODUCER_ID_MAPPING, INVALID_RECORD, INVALID_REQUIRED_ACKS, KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE, NONE, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION,
    TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_COMPRESSION_TYPE)
from kstore._fast.log.append_plan cimport ORIGIN_CLIENT, ORIGIN_GIVEN_OFFSETS, AppendResult
from kstore._fast.broker.node_hints cimport put_leader, write_endpoints
from kstore._fast.broker.produce_slot cimport PartWait
from kstore._fast.broker.produce_unpack cimport find_packed, has_gaps
from kstore._fast.record.recompress cimport recompressed
from kstore._fast.log.producer_table cimport ProducerEntry
from kstore._fast.broker.rights cimport (
    CLUSTER, MAY_GIVE_OFFSETS, MAY_WRITE, PRODUCE_REQUEST, TOPIC, TRANSACTIONAL_ID, note_denied,
    topic_rights,
)
from kstore._fast.record.unpack cimport AT_ONCE_BYTES, Verdict
from kstore._fast.protocol.wire cimport (
    put_count, put_int8, put_int16, put_int32, put_int64, put_no_tags, put_raw, put_string,
    put_unsigned, read_bytes, read_count, read_int16, read_int32, read_number_tag, read_some,
    read_string, read_topic, room, skip_tags)

cdef enum:
    FIRST_FLEXIBLE = 9
    FIRST_LOG_START_OFFSET = 5
    FIRST_ERROR_MESSAGE = 8
    FIRST_ZSTD = 7
    FIRST_CURRENT_LEADER = 10
    FIRST_TOPIC_ID = 13
    ZSTD = 4
    PARTITION_ANSWER_BYTES = 240
    LEADER_TAG = 0                                  # KIP-951
    PARTITION_COUNT_TAG = 25300
    LEADER_EPOCH_TAG = 35900
    USE_OFFSET_TAG = 39100
    LOG_END_OFFSET_TAG = 39101

cdef const char* TOO_MUCH = (
    b"The records of the compressed batch decompress to more than 16 MB, 32 times "
    b"max.message.bytes and 256 times its size: send smaller batches")

cdef struct LookAhead:                              # of what a request has behind its records
    bint extended
    bint use_offset
    bint packed                                     # a batch is compressed, or large


cdef bint is_whole(WireReader r, int version, LookAhead* ahead) noexcept nogil:
    """Walk the whole request by a copy of the reader: a truncated one must append nothing."""
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef Py_ssize_t topics = read_some(&r, flexible)
    cdef Py_ssize_t i, j, partitions
    cdef WireBytes records
    ahead.extended = ahead.packed = False
    for i in range(topics):
        if read_topic(&r, version >= FIRST_TOPIC_ID, flexible).size < 0:
            return False
        partitions = read_some(&r, flexible)
        for j in range(partitions):
            read_int32(&r)
            records = read_bytes(&r, flexible)
            read_number_tag(&r, flexible, LEADER_EPOCH_TAG, 4)
            if r.bad:
                return False
            ahead.packed |= records.size > AT_ONCE_BYTES
            if records.size > BATCH_HEADER_SIZE:
                ahead.packed |= (records.data[BATCH_ATTRIBUTES_AT + 1] & COMPRESSION_MASK) != 0
        ahead.extended |= flexible and r.p < r.end and r.p[0] != 0
        read_number_tag(&r, flexible, PARTITION_COUNT_TAG, 4)
        if r.bad:
            return False
    ahead.use_offset = read_number_tag(&r, flexible, USE_OFFSET_TAG, 1) > 0
    return not r.bad


cdef int64_t partition_count(WireReader r, int version, Py_ssize_t partitions) noexcept nogil:
    """The topic's number of partitions as the producer knows it (KIP-253), or -1; r, a copy, stands
    before the topic's partitions.
    """
    cdef Py_ssize_t i
    for i in range(partitions):
        read_int32(&r)
        read_bytes(&r, True)
        skip_tags(&r, True)
    return read_number_tag(&r, True, PARTITION_COUNT_TAG, 4)


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


cdef class ProducePath:
    """The state that all produce requests share: the partitions, and the counters."""

    def __init__(
        self, PartitionTable table not None, report, *, bint durable=False, call_later=None
    ):
        self.table = table
        self.waiting = ProduceWaits(table, call_later)
        self.durable = durable
        self.at_once = Verdict()
        self.appended = []
        self.report = report

    cdef int handle(
        self, AnswerSink connection, WireReader* r, int version, AnswerBuffer out
    ) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef int acks
        cdef Py_ssize_t topics, i
        cdef int failures = 0
        cdef LookAhead ahead
        cdef WireBytes transactional_id = read_string(r, flexible)
        self.in_transaction = transactional_id.size >= 0
        acks = read_int16(r)
        self.needs_all = acks == -1
        self.timeout_ms = read_int32(r)
        if r.bad or not is_whole(r[0], version, &ahead):
            return PRODUCE_MALFORMED
        self.requests += 1
        self.extended = ahead.extended
        self.use_offset = ahead.use_offset
        self.barred = NONE
        if self.rights is not None:
            self.barred = self.check_rights(connection, r[0], version, transactional_id)
        if self.durable:
            self.appended = []
        self.refused = self.waits = self.leaders = None
        if ahead.packed and self.barred == NONE and self.must_unpack(connection, r[0], version):
            self.requests -= 1
            return PRODUCE_LATER
        if self.in_transaction and self.barred == NONE and self.admit_transactional is not None:
            if not self.admit(connection, r[0], version, transactional_id):
                self.requests -= 1
                return PRODUCE_LATER
        self.place = -1
        topics = read_count(r, flexible)
        room(out, 16)
        put_count(out, topics if topics > 0 else 0, flexible)
        for i in range(topics):
            failures += self.append_topic(connection, r, version, acks, out)
        connection.verdicts = None
        room(out, 8)
        self.throttle_at = out.size
        put_int32(out, 0)
        if self.leaders is None:
            put_no_tags(out, flexible)
        else:
            write_endpoints(out, self.table, self.leaders, connection.listener_name())
        if acks == 0:
            return PRODUCE_CLOSE if failures else PRODUCE_SILENT
        return PRODUCE_ANSWERED

    cdef bint must_unpack(self, AnswerSink connection, WireReader r, int version) except -1:
        """Whether threads have to look into batches first; they are asked to."""
        cdef list found
        if self.unpack_later is None:
            return False
        found = find_packed(
            self.table, r, version, self.rights, connection.verdicts, &self.unpack_budget)
        if found is None:
            return False
        if connection.verdicts is None:
            connection.verdicts = {}
        self.unpack_later(connection, found)
        return True

    cdef ProduceSlot park(
        self, AnswerSink sink, int32_t correlation_id, bint flexible, AnswerBuffer answer,
        Py_ssize_t start
    ):
        cdef PartWait wait
        cdef list waits = self.waits
        self.waits = None
        for wait in waits:
            wait.error_at -= start
            if wait.tags_at >= 0:
                wait.tags_at -= start
        return self.waiting.park(
            sink, correlation_id, flexible, answer, waits, self.timeout_ms, bool(self.appended))

    cdef int admit(
        self, AnswerSink connection, WireReader r, int version, WireBytes transactional_id
    ) except -1:
        """Ask the coordinator about the partitions where the producer has no open transaction: it
        adds them, or looks whether they were (KIP-890). r, a copy, stands before the topics. False:
        it is not known yet.
        """
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef Py_ssize_t topics = read_count(&r, flexible)
        cdef Py_ssize_t i, j, partitions
        cdef WireBytes topic, records
        cdef TopicEntry entry
        cdef Partition partition
        cdef int32_t index
        cdef BatchInfo info
        cdef int64_t producer_id = -1
        cdef int16_t epoch = -1
        cdef bint mixed = False
        cdef list asked = []
        for i in range(topics):
            topic = read_topic(&r, version >= FIRST_TOPIC_ID, flexible)
            entry = self.table.find_id(topic.data) if version >= FIRST_TOPIC_ID \
                else self.table.find_name(topic.data, topic.size)
            if not self.may_write(connection, entry, topic, version):
                entry = None
            partitions = read_count(&r, flexible)
            for j in range(partitions):
                index = read_int32(&r)
                records = read_bytes(&r, flexible)
                skip_tags(&r, flexible)
                if entry is None or not 0 <= index < len(entry.partitions) or records.size <= 0:
                    continue
                partition = <Partition>entry.partitions[index]
                if partition is None or not partition.online or read_batch_header(
                        records.data, records.data + records.size, &info) != BATCH_OK:
                    continue
                if not is_transactional(&info) or info.producer_id < 0:
                    continue
                mixed |= producer_id >= 0 and (
                    producer_id != info.producer_id or epoch != info.producer_epoch)
                producer_id = info.producer_id
                epoch = info.producer_epoch
                if mixed or not has_transaction(partition, producer_id, epoch):
                    asked.append((partition, info.base_sequence))
            skip_tags(&r, flexible)
        if mixed:
            self.refused = dict.fromkeys(
                [partition for partition, _ in asked], INVALID_PRODUCER_ID_MAPPING)
        elif asked:
            name = (<const char*>transactional_id.data)[:transactional_id.size]
            self.refused = self.admit_transactional(
                connection, name.decode("utf-8", "replace"), (producer_id, epoch), version, asked)
            return self.refused is not None
        return True

    cdef int16_t check_rights(
        self, AnswerSink connection, WireReader r, int version, WireBytes transactional_id
    ) except -1:
        """Whether who asks may give offsets and use the transactional id, where it does either; r,
        a copy, stands before the topics.
        """
        if self.use_offset and not self.rights.cluster & MAY_GIVE_OFFSETS:
            note_denied(
                connection, PRODUCE_REQUEST, MAY_GIVE_OFFSETS, CLUSTER, b"kafka-cluster")
            return CLUSTER_AUTHORIZATION_FAILED
        if not self.in_transaction:
            return NONE
        name = (<const char*>transactional_id.data)[:transactional_id.size]
        rights = self.rights.mask(TRANSACTIONAL_ID, name.decode("utf-8", "replace"))
        if rights & MAY_WRITE or not has_transactional(r, version):
            return NONE
        note_denied(connection, PRODUCE_REQUEST, MAY_WRITE, TRANSACTIONAL_ID, name)
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    cdef bint may_write(
        self, AnswerSink connection, TopicEntry entry, WireBytes topic, int version
    ) except -1:
        """Whether who asks may write to the topic. Of an id that nobody has, that is told instead.
        """
        if self.rights is None or entry is None and version >= FIRST_TOPIC_ID:
            return True
        name = (<const char*>topic.data)[:topic.size] if entry is None else entry.name
        if topic_rights(self.rights, name) & MAY_WRITE:
            return True
        note_denied(connection, PRODUCE_REQUEST, MAY_WRITE, TOPIC, name)
        return False

    cdef int append_topic(
        self, AnswerSink connection, WireReader* r, int version, int acks, AnswerBuffer out
    ) except -1:
        """Append and answer one topic's partitions; returns how many failed."""
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef WireBytes topic = read_topic(r, version >= FIRST_TOPIC_ID, flexible)
        cdef WireBytes records
        cdef TopicEntry entry
        cdef Partition partition
        cdef Py_ssize_t partitions = read_count(r, flexible)
        cdef Py_ssize_t j
        cdef int64_t known_count, known_epoch
        cdef int32_t index
        cdef int16_t error
        cdef int16_t denied = self.barred
        cdef int failures = 0
        cdef Py_ssize_t error_at, tags_at
        cdef ProduceOffsets offsets
        room(out, topic.size + 16)
        if version >= FIRST_TOPIC_ID:
            entry = self.table.find_id(topic.data)
            put_raw(out, topic.data, 16)
        else:
            entry = self.table.find_name(topic.data, topic.size)
            put_string(out, topic.data, topic.size, flexible)
        if denied == NONE and not self.may_write(connection, entry, topic, version):
            denied = TOPIC_AUTHORIZATION_FAILED
        known_count = partition_count(r[0], version, partitions) if self.extended else -1
        put_count(out, partitions if partitions > 0 else 0, flexible)
        for j in range(partitions):
            index = read_int32(r)
            records = read_bytes(r, flexible)
            known_epoch = read_number_tag(r, flexible, LEADER_EPOCH_TAG, 4)
            partition = None
            self.place += 1
            offsets.holds_too_much = False
            offsets.base_offset = offsets.log_append_time_ms = -1
            offsets.log_start_offset = offsets.log_end_offset = offsets.wait_offset = -1
            error = UNKNOWN_TOPIC_ID if version >= FIRST_TOPIC_ID else UNKNOWN_TOPIC_OR_PARTITION
            if denied != NONE:
                error = denied
            elif entry is not None:
                if 0 <= index < len(entry.partitions):
                    partition = <Partition>entry.partitions[index]
                error = check_place(entry, partition, records, known_count)
            if error == NONE and (acks < -1 or acks > 1):
                error = INVALID_REQUIRED_ACKS
            if error == NONE and self.injected is not None:
                error = self.injected.get(partition, NONE)
            if error == NONE:
                error = self.append_one(
                    partition, records, version, known_epoch, self.verdict(connection), &offsets)
            if error == NONE and self.injected_after is not None \
                    and partition in self.injected_after:
                error = self.injected_after[partition]
                offsets.base_offset = offsets.log_append_time_ms = offsets.wait_offset = -1
            if error != NONE:
                failures += 1
            error_at = out.size + 4
            tags_at = put_partition(out, version, index, error, &offsets, partition)
            if offsets.wait_offset >= 0:
                self.wait_for(partition, offsets.wait_offset, error_at, tags_at)
            elif (error != NONE and self.table.node_endpoint is not None
                    and tells_leader(version, error, partition)):
                self.leaders = self.leaders or []
                if partition.leader_id not in self.leaders:
                    self.leaders.append(partition.leader_id)
        skip_tags(r, flexible)
        put_no_tags(out, flexible)
        return failures

    cdef Verdict verdict(self, AnswerSink connection):
        """What a thread has said of the batch at hand; or how much of it may be looked at here."""
        if self.unpack_later is None:
            return None
        if connection.verdicts is None:
            return self.at_once
        return connection.verdicts.get(self.place, self.at_once)

    cdef int16_t append_one(
        self, Partition partition, WireBytes records, int version, int64_t known_epoch,
        Verdict seen, ProduceOffsets* offsets
    ) except -1:
        cdef AppendResult result
        cdef int origin = ORIGIN_GIVEN_OFFSETS if self.use_offset else ORIGIN_CLIENT
        cdef bytearray anew
        cdef int16_t error
        if self.use_offset and partition.online:
            offsets.log_end_offset = partition.core.log_end_offset
        error = check_records(records, version, self.in_transaction, self.use_offset)
        if error == NONE:
            error = check_leader(partition, known_epoch)
        if error == NONE and self.refused is not None:
            error = self.refused.get(partition, NONE)
        if (error == NONE and self.needs_all
                and partition.insync_replicas < partition.min_insync_replicas):
            error = NOT_ENOUGH_REPLICAS
        if error != NONE:
            return error
        self.bytes_in += records.size
        if partition.stored_codec >= 0 and records.size <= partition.core.plan.max_message_bytes:
            if seen is not None and seen.status >= 0:
                anew = seen.anew
            else:
                anew = recompressed(
                    records.data, records.size, partition.stored_codec, partition.stored_level,
                    MAX_DECOMPRESSED_BYTES if seen is None else seen.max_bytes)
            if anew is not None:
                records.data = <uint8_t*>PyByteArray_AS_STRING(anew)
                records.size = len(anew)
        try:
            partition.append_seen(
                <uint8_t*>records.data, records.size, origin, seen, &result)
        except OSError as problem:
            name = partition.entry.name.decode()
            name = f"{name}-{partition.index}"
            self.report(f"cannot append to {name}: {problem}", f"cannot append to {name}")
            return KAFKA_STORAGE_ERROR
        self.batches += 1
        if result.error_code == NONE:
            offsets.base_offset = result.base_offset
            offsets.log_append_time_ms = result.log_append_time_ms
            if (self.needs_all and partition.replication is not None
                    and partition.core.high_watermark <= result.last_offset):
                offsets.wait_offset = result.last_offset + 1
            if self.durable:
                self.appended.append((partition.log, result.last_offset + 1))
        offsets.log_start_offset = result.log_start_offset
        offsets.holds_too_much = seen is not None and seen.status == BATCH_TOO_LARGE
        if self.use_offset:
            offsets.log_end_offset = result.log_end_offset
            if result.error_code == INVALID_RECORD and has_gaps(records, seen):
                return CORRUPT_MESSAGE
        return result.error_code

    cdef int wait_for(
        self, Partition partition, int64_t end_offset, Py_ssize_t error_at, Py_ssize_t tags_at
    ) except -1:
        """The answer tells, at these places, of records that the followers do not have yet."""
        cdef PartWait wait = PartWait.__new__(PartWait)
        wait.partition = partition
        wait.end_offset = end_offset
        wait.error_at = error_at
        wait.tags_at = tags_at
        if self.waits is None:
            self.waits = []
        self.waits.append(wait)
        return 0


cdef bint has_transactional(WireReader r, int version) except -1:
    """Whether any batch of a request belongs to a transaction; r, a copy, stands before the topics.
    """
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef Py_ssize_t topics = read_count(&r, flexible)
    cdef Py_ssize_t i, j, partitions
    cdef WireBytes records
    cdef BatchInfo info
    for i in range(topics):
        read_topic(&r, version >= FIRST_TOPIC_ID, flexible)
        partitions = read_count(&r, flexible)
        for j in range(partitions):
            read_int32(&r)
            records = read_bytes(&r, flexible)
            skip_tags(&r, flexible)
            if records.size > 0 and read_batch_header(
                    records.data, records.data + records.size, &info) == BATCH_OK \
                    and is_transactional(&info):
                return True
        skip_tags(&r, flexible)
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


cdef Py_ssize_t put_partition(
    AnswerBuffer out, int version, int32_t index, int16_t error, ProduceOffsets* offsets,
    Partition partition
) except -2:
    """One partition's answer. Returns where its tagged fields begin, -1: they tell no leader."""
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef Py_ssize_t tags_at
    room(out, PARTITION_ANSWER_BYTES)
    put_int32(out, index)
    put_int16(out, error)
    put_int64(out, offsets.base_offset)
    put_int64(out, offsets.log_append_time_ms)
    if version >= FIRST_LOG_START_OFFSET:
        put_int64(out, offsets.log_start_offset)
    if version >= FIRST_ERROR_MESSAGE:
        put_count(out, 0, flexible)                 # record errors
        if error == MESSAGE_TOO_LARGE and offsets.holds_too_much:
            put_string(out, <const uint8_t*>TOO_MUCH, len(TOO_MUCH), flexible)
        else:
            put_string(out, NULL, -1, flexible)     # no error message
    tags_at = out.size
    if flexible:
        put_partition_tags(out, tells_leader(version, error, partition), offsets, partition)
    return tags_at if version >= FIRST_CURRENT_LEADER else -1


cdef bint tells_leader(int version, int16_t error, Partition partition) noexcept:
    """Whether the answer names the leader: to a client that asked the wrong broker (KIP-951) or
    with an old epoch.
    """
    return version >= FIRST_CURRENT_LEADER and (
        error == NOT_LEADER_OR_FOLLOWER or error == FENCED_LEADER_EPOCH
    ) and partition.leader_id >= 0


cdef int put_partition_tags(
    AnswerBuffer out, bint leader, ProduceOffsets* offsets, Partition partition
) noexcept:
    """The leader; the log end offset, for one that gives offsets."""
    put_int8(out, leader + (offsets.log_end_offset >= 0))
    if leader:
        put_leader(out, LEADER_TAG, partition)
    if offsets.log_end_offset >= 0:
        put_unsigned(out, LOG_END_OFFSET_TAG)
        put_int8(out, 8)
        put_int64(out, offsets.log_end_offset)
    return 0
