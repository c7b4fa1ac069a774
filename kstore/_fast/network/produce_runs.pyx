"""Pipelined Produce requests of a connection: requests of one read to one partition, with one small
batch each, are appended by one write.

A write of 16 KB costs 9 us, a write of five such batches 25 us. Each request is checked and
answered as if it were alone, and the order in the log is that of the requests. Other requests
(several partitions, compression, transactions, acks=0, quotas, injected faults) are handled one by
one.
"""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcmp

from kstore._fast.broker.partition cimport TopicEntry
from kstore._fast.broker.partition_events cimport OF_PRODUCE
from kstore._fast.broker.produce_checks cimport check_place
from kstore._fast.broker.produce_slot cimport NO_WORDS, ProduceOffsets, put_partition
from kstore._fast.broker.rights cimport MAY_WRITE, topic_rights
from kstore._fast.broker.slots cimport begin_answer, end_answer
from kstore._fast.broker.produce_request cimport ProduceTopic
from kstore._fast.error_codes cimport KAFKA_STORAGE_ERROR, NONE
from kstore._fast.log.append_plan cimport MAX_PIECES
from kstore._fast.log.clock cimport now_us
from kstore._fast.network.request_times cimport LOCAL, TimedRequest
from kstore._fast.protocol.wire cimport (
    AnswerBuffer, WireReader, begin_reading, put_count, put_int32, put_no_tags, put_raw, put_string,
    read_int16, read_int32, read_string, room, skip_tags)
from kstore._fast.record.buffer cimport load_int32

cdef enum:
    PRODUCE = 0
    HEAD_BYTES = 12                         # of a frame: its size, API key, version, id
    LARGEST_BYTES = 32 * 1024               # larger batches save little
    MOST_BYTES = 128 * 1024                 # of one write


cdef inline Py_ssize_t small_produce(const uint8_t* data, Py_ssize_t size) noexcept:
    """The size of the complete Produce request at data; 0: there is none, or it is large."""
    cdef int64_t frame
    if size < HEAD_BYTES or data[4] or data[5] != PRODUCE:
        return 0
    frame = 4 + <int64_t>load_int32(data)
    return <Py_ssize_t>frame if HEAD_BYTES <= frame <= min(size, LARGEST_BYTES) else 0


cdef bint same_place(ProduceRequest one, ProduceRequest other) noexcept:
    """Whether two requests have the same partition and version."""
    return (
        one.version == other.version
        and one.topics[0].name.size == other.topics[0].name.size
        and one.partitions[0].index == other.partitions[0].index
        and one.topics[0].known_count == other.topics[0].known_count
        and memcmp(one.topics[0].name.data, other.topics[0].name.data,
                   one.topics[0].name.size) == 0)


cdef class ProduceRuns:
    """Consecutive small Produce requests of one connection."""

    def __cinit__(self):
        self.requests = [ProduceRequest() for _ in range(MAX_PIECES)]

    cdef int serve(self, DataPlane plane) except -1:
        """Become the ProduceRuns of this plane."""
        self.path = plane.produce
        self.api = &plane.apis[PRODUCE]
        self.max_elements = plane.max_elements
        plane.runs = self
        return 0

    cdef Py_ssize_t take(self, RequestPaths sink, uint8_t* data, Py_ssize_t size) except -1:
        cdef RequestHead[MAX_PIECES] heads
        cdef AppendPiece[MAX_PIECES] pieces
        cdef Py_ssize_t frame, used = 0, total = 0
        cdef Partition partition = None
        cdef ProduceRequest request
        cdef TimedRequest timed = None
        cdef int64_t append_us
        cdef Py_ssize_t slots, out_bytes
        cdef bint failed
        cdef int i, count = 0
        frame = small_produce(data, size)
        if frame == 0 or small_produce(data + frame, size - frame) == 0:
            return 0
        while count < MAX_PIECES:
            frame = small_produce(data + used, size - used)
            if frame == 0:
                break
            request = <ProduceRequest>self.requests[count]
            if not self.read(data + used + 4, frame - 4, &heads[count], request):
                break
            if count == 0:
                partition = self.find(sink, request)
                if partition is None:
                    return 0
            elif not same_place(<ProduceRequest>self.requests[0], request):
                break
            total += request.partitions[0].records.size
            if total > MOST_BYTES or self.path.check_one(
                    partition, request, &request.partitions[0]) != NONE:
                break
            pieces[count].data = <uint8_t*>request.partitions[0].records.data
            pieces[count].size = request.partitions[0].records.size
            used += frame
            count += 1
        if count < 2 or not partition.core.may_append_pieces(pieces, count):
            return 0
        failed = not self.append(partition, pieces, count)
        sink.plane.watch.api_key = PRODUCE
        append_us = (now_us() - sink.plane.watch.last_us) // count
        for i in range(count):
            request = <ProduceRequest>self.requests[i]
            slots = len(sink.slots)
            out_bytes = sink.plane.out.size
            self.answer(sink, &heads[i], request, partition, &pieces[i], failed)
            if timed is not None and slots == len(sink.slots) == 0 \
                    and sink.plane.times.tell is None:
                timed.copies += 1           # answered like the one before it: no separate time
                continue
            timed = sink.begin_time(&heads[i], pieces[i].size)
            timed.mark_us += i * append_us
            sink.end_local(timed, slots, out_bytes)
            timed.us[LOCAL] = append_us
        return used

    cdef bint read(
        self, uint8_t* data, Py_ssize_t size, RequestHead* head, ProduceRequest request
    ) except -1:
        """Whether the request is plain enough for a run."""
        cdef WireReader r
        begin_reading(&r, data, size, self.max_elements)
        head.api_key = read_int16(&r)
        head.api_version = read_int16(&r)
        head.correlation_id = read_int32(&r)
        if not self.api.min_version <= head.api_version <= self.api.max_version:
            return False
        head.flexible_answer = head.flexible = head.api_version >= self.api.flexible_from
        head.client_id = read_string(&r, False)
        skip_tags(&r, head.flexible)
        if r.bad or not request.parse(r, head.api_version):
            return False
        return (
            request.topic_count == 1 and request.partition_count == 1 and not request.packed
            and not request.in_transaction and not request.use_offset
            and (request.acks == 1 or request.acks == -1))

    cdef Partition find(self, RequestPaths sink, ProduceRequest request):
        """The partition of its batch; None: the request or the broker's state is not plain."""
        cdef ProducePath path = self.path
        cdef TopicEntry entry
        cdef Partition partition
        cdef int32_t index = request.partitions[0].index
        if path.durable or path.injected is not None or path.injected_after is not None \
                or path.table.lost_leaders is not None:
            return None
        path.refused = path.waits = None
        entry = path.find_topic(request, &request.topics[0])
        if entry is None or entry.internal or not 0 <= index < len(entry.partitions):
            return None
        rights = sink.rights()
        if rights is not None and not topic_rights(rights, entry.name) & MAY_WRITE:
            return None
        partition = <Partition>entry.partitions[index]
        if partition is None or not partition.online or partition.stored_codec >= 0:
            return None
        if check_place(entry, partition, request.partitions[0].records,
                       request.topics[0].known_count, request.exact) != NONE:
            return None
        return partition

    cdef bint append(self, Partition partition, AppendPiece* pieces, int count) except -1:
        """Append them; False if the write failed."""
        cdef int64_t end = partition.core.log_end_offset
        cdef int i
        self.runs += 1
        self.api.requests += count
        self.path.requests += count
        for i in range(count):
            self.path.bytes_in += pieces[i].size
        try:
            partition.core.append_pieces(pieces, count, partition.leader_epoch)
        except OSError as problem:
            partition.note_error(problem)
            partition.resign()
            self.path.fail_one(partition, problem)
            return False
        if partition.core.log_end_offset > end:
            partition.note_grown(end)
        return True

    cdef int answer(
        self, RequestPaths sink, RequestHead* head, ProduceRequest request, Partition partition,
        AppendPiece* piece, bint failed
    ) except -1:
        """Answer one of them, at once or when the followers have it."""
        cdef AnswerBuffer out = sink.buffer_for_answer()
        cdef Py_ssize_t start = begin_answer(out, head.correlation_id, head.flexible_answer)
        cdef Py_ssize_t error_at, tags_at
        cdef ProduceTopic* topic = &request.topics[0]
        cdef ProduceOffsets offsets
        cdef int16_t error = KAFKA_STORAGE_ERROR
        offsets.words = NO_WORDS
        offsets.base_offset = offsets.log_append_time_ms = -1
        offsets.log_start_offset = offsets.log_end_offset = offsets.wait_offset = -1
        if not failed:
            error = self.path.end_one(
                partition, request, request.partitions[0].records, None, &piece.result, &offsets)
        if error:
            self.path.table.errors.add(OF_PRODUCE, error)
        self.path.table.counts.produced(error, piece.size)
        partition.entry.counts.produced(error, piece.size)
        room(out, topic.name.size + 32)
        put_count(out, 1, request.flexible)
        if request.by_id:
            put_raw(out, topic.name.data, 16)
        else:
            put_string(out, topic.name.data, topic.name.size, request.flexible)
        put_count(out, 1, request.flexible)
        error_at = out.size + 4
        tags_at = put_partition(
            out, request.version, request.partitions[0].index, error, &offsets, partition,
            self.path.faults)
        room(out, 16)
        put_no_tags(out, request.flexible)
        put_int32(out, 0)                   # throttle time
        put_no_tags(out, request.flexible)
        if offsets.wait_offset >= 0:
            self.path.wait_for(partition, offsets.wait_offset, error_at, tags_at)
            self.path.timeout_ms = request.timeout_ms
            return sink.park_produce(head, out, start)
        end_answer(out, start)
        return sink.queue_answer(out)
