"""Produce, versions 3 to 13: the request is read (produce_request.pyx), appended and answered.

Records are validated and appended from the receive buffer. The partition table knows the leaders,
and the log core decides what it refuses; this module maps that to Kafka's answer. Some tagged
fields are kstore's: the producer's leader epoch (KIP-359), its partition count (KIP-253) and the
use of given offsets (KIP-391).
"""

from cpython.bytearray cimport PyByteArray_AS_STRING

from kstore._fast.broker.node_hints cimport write_endpoints
from kstore._fast.broker.partition_events cimport OF_PRODUCE
from kstore._fast.broker.produce_checks cimport (
    check_exact, check_leader, check_place, check_records, check_rights, find_faults,
    has_transaction, has_transactional, is_admin, may_write, name_of, origin_of)
from kstore._fast.broker.produce_slot cimport (
    BAD_RECORDS, HOLDS_TOO_MUCH, IS_A_COPY, NO_BATCH, NO_WORDS, PartWait, put_partition,
    tells_leader)
from kstore._fast.broker.produce_later cimport ProduceAppends, find_packed, has_gaps
from kstore._fast.broker.rights cimport MAY_WRITE, topic_rights
from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, INVALID_PRODUCER_ID_MAPPING, INVALID_RECORD, INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP, INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NONE,
    NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION)
from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.protocol.wire cimport (
    WireBytes, put_count, put_int32, put_no_tags, put_raw, put_string, room)
from kstore._fast.record.batch cimport (
    BATCH_OK, BATCH_TOO_LARGE, BatchInfo, is_transactional, read_batch_header)
from kstore._fast.record.compression cimport MAX_DECOMPRESSED_BYTES
from kstore._fast.record.recompress cimport recompressed


cdef class ProducePath:
    """The state that all produce requests share: the partitions, and the counters."""

    def __init__(
        self, PartitionTable table not None, report, *, bint durable=False, call_later=None
    ):
        self.table = table
        self.waiting = ProduceWaits(table.replication, call_later)
        self.durable = durable
        self.at_once = Verdict()
        self.appended = []
        self.report = report

    cdef int handle(
        self, AnswerSink connection, WireReader* r, int version, AnswerBuffer out
    ) except -1:
        cdef ProduceRequest request = self.spare
        cdef int outcome = PRODUCE_MALFORMED
        self.spare = None
        if request is None:
            request = ProduceRequest()
        if request.parse(r[0], version):
            outcome = self.handle_parsed(connection, request, out)
        request.trim()
        self.spare = request
        return outcome

    cdef int handle_parsed(
        self, AnswerSink connection, ProduceRequest request, AnswerBuffer out
    ) except -1:
        cdef Py_ssize_t i
        cdef int failures = 0
        self.requests += 1
        self.timeout_ms = request.timeout_ms
        self.barred = NONE
        if self.rights is not None:
            self.barred = check_rights(self.rights, connection, request)
        if request.transactional and not request.in_transaction and has_transactional(request):
            self.barred = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if self.durable:
            self.appended = []
        self.refused = self.waits = self.leaders = None
        if self.barred == NONE and self.must_come_later(connection, request):
            self.requests -= 1
            return PRODUCE_LATER
        room(out, 16)
        put_count(out, request.topic_count, request.flexible)
        for i in range(request.topic_count):
            failures += self.append_topic(connection, request, &request.topics[i], out)
        connection.verdicts = connection.appends = None
        room(out, 8)
        self.throttle_at = out.size
        put_int32(out, 0)
        if self.leaders is None:
            put_no_tags(out, request.flexible)
        else:
            write_endpoints(out, self.table, self.leaders, connection.listener_name())
        if request.acks == 0:
            return PRODUCE_CLOSE if failures else PRODUCE_SILENT
        return PRODUCE_ANSWERED

    cdef bint must_wait(self, AnswerSink connection, ProduceRequest request) except -1:
        """Whether it is held until the leader of one of its partitions is known."""
        cdef ProduceTopic* topic
        cdef TopicEntry entry
        cdef Partition partition
        cdef Py_ssize_t i, j
        for i in range(request.topic_count):
            topic = &request.topics[i]
            entry = self.find_topic(request, topic)
            for j in range(topic.first, topic.first + topic.count if entry is not None else 0):
                if 0 <= request.partitions[j].index < len(entry.partitions):
                    partition = <Partition>entry.partitions[request.partitions[j].index]
                    if self.table.lacks_leader(partition):
                        return self.table.leader_waits.hold(connection, partition)
        return False

    cdef bint must_come_later(self, AnswerSink connection, ProduceRequest request) except -1:
        """Whether it must wait for a leader, for threads or for the transaction coordinator. Their
        results are valid when the request is handled again, even if something has changed since.
        """
        if connection.appends is not None:
            self.refused = (<ProduceAppends>connection.appends).refused
        else:
            if self.table.lost_leaders is not None and self.must_wait(connection, request):
                return True
            if request.packed and self.must_unpack(connection, request):
                return True
            if request.in_transaction and self.admit_transactional is not None \
                    and not self.admit(connection, request):
                return True
        return self.must_append_later(connection, request)

    cdef bint must_append_later(self, AnswerSink connection, ProduceRequest request) except -1:
        """Whether batches may have to wait for the disk, or for earlier ones of their log; threads
        append them. Nothing is appended before all of these are known.
        """
        cdef ProduceAppends group = <ProduceAppends>connection.appends
        cdef const ProduceTopic* topic
        cdef const ProducePartition* part
        cdef TopicEntry entry
        cdef Partition partition
        cdef Verdict seen
        cdef Py_ssize_t i, place
        for i in range(request.topic_count):
            topic = &request.topics[i]
            entry = self.find_topic(request, topic)
            if entry is None:
                continue
            for place in range(topic.first, topic.first + topic.count):
                part = &request.partitions[place]
                if not 0 <= part.index < len(entry.partitions):
                    continue
                partition = <Partition>entry.partitions[part.index]
                if partition is None or not partition.online or partition.core.may_append_now(
                        part.records.data, part.records.size, request.use_offset):
                    continue
                if group is not None and place in group.jobs:
                    continue
                if self.check_part(partition, request, topic, part) != NONE:
                    continue                        # it is refused after all others are appended
                if group is None:
                    connection.appends = group = ProduceAppends(connection)
                    group.refused = self.refused
                seen = self.verdict(connection, place)
                group.add(
                    place, partition, part.records,
                    None if request.exact else self.stored_anew(partition, part.records, seen),
                    origin_of(request), seen)
        return group is not None and len(group.fresh) > 0

    cdef int16_t check_part(
        self, Partition partition, ProduceRequest request, const ProduceTopic* topic,
        const ProducePartition* part
    ) except -1:
        """Why a batch will be refused, as far as it is known now; not reported yet."""
        cdef TopicEntry entry = partition.entry
        cdef int16_t error = NONE
        if self.rights is not None and not topic_rights(self.rights, entry.name) & MAY_WRITE:
            return TOPIC_AUTHORIZATION_FAILED
        if self.injected is not None:
            error = self.injected.get(partition, NONE)
        if error == NONE:
            error = check_place(entry, partition, part.records, topic.known_count, request.exact)
        return error or self.check_one(partition, request, part)

    cdef bint must_unpack(self, AnswerSink connection, ProduceRequest request) except -1:
        """Whether threads must check batches first; starts the checks."""
        cdef list found
        if self.unpack_later is None:
            return False
        found = find_packed(
            self.table, request, self.rights, connection.verdicts, &self.unpack_budget)
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

    cdef int admit(self, AnswerSink connection, ProduceRequest request) except -1:
        """Ask the coordinator about the partitions without an open transaction of the producer: it
        adds them, or checks that they were added (KIP-890). False: not known yet.
        """
        cdef Transactional found
        cdef Py_ssize_t i
        cdef list asked = []
        found.producer_id = found.epoch = -1
        found.mixed = False
        for i in range(request.topic_count):
            self.find_transactional(connection, request, &request.topics[i], &found, asked)
        if found.mixed:
            self.refused = dict.fromkeys(
                [partition for partition, _ in asked], INVALID_PRODUCER_ID_MAPPING)
        elif asked:
            name = name_of(request.transactional_id).decode("utf-8", "replace")
            self.refused = self.admit_transactional(
                connection, name, (found.producer_id, found.epoch), request.version, asked)
            return self.refused is not None
        return True

    cdef int find_transactional(
        self, AnswerSink connection, ProduceRequest request, ProduceTopic* topic,
        Transactional* found, list asked
    ) except -1:
        """Add a topic's partitions to the question for the coordinator."""
        cdef TopicEntry entry = self.find_topic(request, topic)
        cdef ProducePartition* part
        cdef Partition partition
        cdef BatchInfo info
        cdef Py_ssize_t i
        if entry is None or not may_write(
                self.rights, connection, request.by_id, topic.name, entry):
            return 0
        for i in range(topic.first, topic.first + topic.count):
            part = &request.partitions[i]
            if not 0 <= part.index < len(entry.partitions) or part.records.size <= 0:
                continue
            partition = <Partition>entry.partitions[part.index]
            if partition is None or not partition.online or read_batch_header(
                    part.records.data, part.records.data + part.records.size, &info) != BATCH_OK:
                continue
            if not is_transactional(&info) or info.producer_id < 0:
                continue
            found.mixed |= found.producer_id >= 0 and (
                found.producer_id != info.producer_id or found.epoch != info.producer_epoch)
            found.producer_id = info.producer_id
            found.epoch = info.producer_epoch
            if found.mixed or not has_transaction(partition, info.producer_id, info.producer_epoch):
                asked.append((partition, info.base_sequence))
        return 0

    cdef TopicEntry find_topic(self, ProduceRequest request, const ProduceTopic* topic):
        if request.by_id:
            return self.table.find_id(topic.name.data)
        return self.table.find_name(topic.name.data, topic.name.size)

    cdef int append_topic(
        self, AnswerSink connection, ProduceRequest request, const ProduceTopic* topic,
        AnswerBuffer out
    ) except -1:
        """Append and answer one topic's partitions; returns the number of errors."""
        cdef ProduceAppends group = <ProduceAppends>connection.appends
        cdef ProduceJob job
        cdef TopicEntry entry = self.find_topic(request, topic)
        cdef Partition partition
        cdef ProducePartition* part
        cdef Py_ssize_t i, error_at, tags_at
        cdef int16_t error
        cdef int16_t denied = self.barred
        cdef int failures = 0
        cdef ProduceOffsets offsets
        room(out, topic.name.size + 16)
        if request.by_id:
            put_raw(out, topic.name.data, 16)
        else:
            put_string(out, topic.name.data, topic.name.size, request.flexible)
        if denied == NONE and self.rights is not None and not may_write(
                self.rights, connection, request.by_id, topic.name, entry):
            denied = TOPIC_AUTHORIZATION_FAILED
        put_count(out, topic.count, request.flexible)
        for i in range(topic.first, topic.first + topic.count):
            part = &request.partitions[i]
            partition = None
            if denied == NONE and entry is not None and 0 <= part.index < len(entry.partitions):
                partition = <Partition>entry.partitions[part.index]
            error = denied
            if error == NONE:
                error = check_place(
                    entry, partition, part.records, topic.known_count, request.exact) \
                    if entry is not None \
                    else UNKNOWN_TOPIC_ID if request.by_id else UNKNOWN_TOPIC_OR_PARTITION
            job = None if group is None else group.jobs.get(i)
            if job is not None:
                partition = job.partition
            error = append_part(self, connection, request, i, partition, error, job, &offsets)
            failures += error != NONE
            if error:
                self.table.errors.add(OF_PRODUCE, error)
            self.table.counts.produced(error, part.records.size)
            if entry is not None:
                entry.counts.produced(error, part.records.size)
            error_at = out.size + 4
            tags_at = put_partition(
                out, request.version, part.index, error, &offsets, partition, self.faults)
            if offsets.wait_offset >= 0:
                self.wait_for(partition, offsets.wait_offset, error_at, tags_at)
            elif (error != NONE and self.table.node_endpoint is not None
                    and tells_leader(request.version, error, partition)):
                self.leaders = self.leaders or []
                if partition.leader_id not in self.leaders:
                    self.leaders.append(partition.leader_id)
        put_no_tags(out, request.flexible)
        return failures

    cdef Verdict verdict(self, AnswerSink connection, Py_ssize_t place):
        """A thread's verdict on the batch at a place of its request; or how much of it may be
        checked here.
        """
        if self.unpack_later is None:
            return None
        if connection.verdicts is None:
            return self.at_once
        return connection.verdicts.get(place, self.at_once)

    cdef int16_t append_one(
        self, Partition partition, ProduceRequest request, const ProducePartition* part,
        Verdict seen, ProduceOffsets* offsets
    ) except -1:
        cdef WireBytes records = part.records
        cdef AppendResult result
        cdef bytearray anew
        cdef int16_t error
        if request.use_offset and partition.online:
            offsets.log_end_offset = partition.core.log_end_offset
        error = self.check_one(partition, request, part)
        if error != NONE:
            if error == CORRUPT_MESSAGE:
                offsets.words = NO_BATCH
            return error
        self.bytes_in += records.size
        anew = None if request.exact else self.stored_anew(partition, records, seen)
        if anew is not None:
            records.data = <uint8_t*>PyByteArray_AS_STRING(anew)
            records.size = len(anew)
        try:
            partition.append_seen(
                <uint8_t*>records.data, records.size,
                origin_of(request), seen, &result)
        except OSError as problem:
            return self.fail_one(partition, problem)
        return self.end_one(partition, request, records, seen, &result, offsets)

    cdef int16_t check_one(
        self, Partition partition, ProduceRequest request, const ProducePartition* part
    ) except -1:
        """Why a batch is refused although its partition is right."""
        cdef int16_t error = NONE if request.exact else check_records(part.records, request)
        if error == NONE and not -1 <= request.acks <= 1:
            error = INVALID_REQUIRED_ACKS
        if error == NONE and partition.entry.internal and not is_admin(self.client_id):
            error = INVALID_TOPIC_EXCEPTION
        if error == NONE:
            error = check_leader(partition, part.known_epoch, part.known_life)
        if error == NONE and request.exact:
            error = check_exact(
                part.records, partition.leader_epoch, partition.entry.least_producer_id)
        if error == NONE and self.refused is not None:
            error = self.refused.get(partition, NONE)
        if (error == NONE and request.acks == -1
                and partition.insync_replicas < partition.min_insync_replicas):
            error = NOT_ENOUGH_REPLICAS
        return error

    cdef bytearray stored_anew(self, Partition partition, WireBytes records, Verdict seen):
        """The batch in the topic's codec; None: unchanged."""
        if partition.stored_codec < 0 or records.size > partition.core.plan.max_message_bytes:
            return None
        if seen is not None and seen.status >= 0:
            return seen.anew
        return recompressed(
            records.data, records.size, partition.stored_codec, partition.stored_level,
            MAX_DECOMPRESSED_BYTES if seen is None else seen.max_bytes)

    cdef int16_t fail_one(self, Partition partition, object problem) except -1:
        name = partition.entry.name.decode()
        name = f"{name}-{partition.index}"
        self.report(f"cannot append to {name}: {problem}", f"cannot append to {name}")
        return KAFKA_STORAGE_ERROR

    cdef int16_t take_job(
        self, ProduceJob job, ProduceRequest request, ProduceOffsets* offsets
    ) except -1:
        """The result of a thread's append of a batch."""
        cdef Partition partition = job.partition
        cdef WireBytes records
        self.bytes_in += job.frame_bytes
        if job.problem is not None:
            return self.fail_one(partition, job.problem)
        if job.result.error_code == NONE and request.acks == -1 and (
                not partition.online or partition.replication is not job.replication):
            return NOT_LEADER_OR_FOLLOWER           # there is no notice when the followers have it
        if job.result.error_code == NONE and self.durable and partition.log is None:
            return NOT_LEADER_OR_FOLLOWER           # nor when it is on disk
        records.data = job.data
        records.size = job.size
        return self.end_one(partition, request, records, job.seen, &job.result, offsets)

    cdef int16_t end_one(
        self, Partition partition, ProduceRequest request, WireBytes records, Verdict seen,
        const AppendResult* result, ProduceOffsets* offsets
    ) except -1:
        """The answer after an append, and what it waits for."""
        self.batches += 1
        if result.error_code == NONE:
            if not result.duplicate:
                partition.entry.counts.appended(
                    self.table.counts, result.last_offset - result.base_offset + 1, records.size)
            offsets.base_offset = result.base_offset
            offsets.log_append_time_ms = result.log_append_time_ms
            if (request.acks == -1 and partition.replication is not None
                    and partition.core.high_watermark <= result.last_offset):
                offsets.wait_offset = result.last_offset + 1
            if self.durable:
                self.appended.append((partition.log, result.last_offset + 1))
        offsets.log_start_offset = result.log_start_offset
        if request.use_offset:
            offsets.log_end_offset = result.log_end_offset
        if result.error_code != NONE:
            return self.explain(partition, request, records, seen, result.error_code, offsets)
        return NONE

    cdef int16_t explain(
        self, Partition partition, ProduceRequest request, WireBytes records, Verdict seen,
        int16_t error, ProduceOffsets* offsets
    ) except -1:
        """The error code of a batch that the log has refused, and its message."""
        if error == KAFKA_STORAGE_ERROR or partition.core is None:
            return error                            # by a thread: the log is gone meanwhile
        if records.size > partition.core.plan.max_message_bytes and not request.exact:
            return MESSAGE_TOO_LARGE                # Kafka checks this before the checksum
        if seen is not None and seen.status == BATCH_TOO_LARGE:
            offsets.words = HOLDS_TOO_MUCH
        if error == INVALID_RECORD and request.use_offset and has_gaps(records, seen):
            return CORRUPT_MESSAGE
        if error == INVALID_RECORD or error == INVALID_TIMESTAMP:
            self.faults = []
            error = find_faults(partition, records, error, request.use_offset, self.faults)
            if self.faults:
                offsets.words = BAD_RECORDS
        return error

    cdef int wait_for(
        self, Partition partition, int64_t end_offset, Py_ssize_t error_at, Py_ssize_t tags_at
    ) except -1:
        """Note the places in the answer with records that the followers do not have yet."""
        cdef PartWait wait = PartWait.__new__(PartWait)
        wait.partition = partition
        wait.end_offset = end_offset
        wait.error_at = error_at
        wait.tags_at = tags_at
        if self.waits is None:
            self.waits = []
        self.waits.append(wait)
        return 0


cdef inline int16_t append_part(
    ProducePath path, AnswerSink connection, ProduceRequest request, Py_ssize_t place,
    Partition partition, int16_t error, ProduceJob job, ProduceOffsets* offsets
) except -1:
    """Append the batch at a place of the request, unless a thread has done it, there is already an
    error, or faults are injected; returns the error.
    """
    offsets.words = NO_WORDS
    if error == POLICY_VIOLATION and partition and partition.entry.mirror != request.exact:
        offsets.words = IS_A_COPY
    offsets.base_offset = offsets.log_append_time_ms = -1
    offsets.log_start_offset = offsets.log_end_offset = offsets.wait_offset = -1
    if job is not None:
        error = path.take_job(job, request, offsets)
    elif error == NONE and path.injected is not None:
        error = path.injected.get(partition, NONE)
    if job is None and error == NONE:
        error = path.append_one(
            partition, request, &request.partitions[place], path.verdict(connection, place),
            offsets)
    if error == NONE and path.injected_after is not None and partition in path.injected_after:
        error = path.injected_after[partition]
        offsets.base_offset = offsets.log_append_time_ms = offsets.wait_offset = -1
    return error
