"""The parts of a Produce request that threads do before it is answered: checks of batches that
claim to be large, or that arrive when the turn has decompressed enough; and appends that may wait
for the disk.

The connection keeps the request and handles it again afterwards. Batches that are refused anyway
(no right, not the leader, too large) are not checked.
"""

from libc.stdlib cimport free

from cpython.bytearray cimport PyByteArray_AS_STRING

from kstore._fast.log.append_queue cimport AppendQueue
from kstore._fast.record.batch cimport (
    BATCH_BAD_OFFSET_DELTA, BATCH_HEADER_SIZE, BATCH_OK, COMPRESSION_MASK, BatchInfo, is_compressed,
    read_batch_header, validate_batch, validate_compressed)
from kstore._fast.record.compression cimport MAX_DECOMPRESSED_BYTES
from kstore._fast.broker.partition cimport Partition, TopicEntry
from kstore._fast.broker.rights cimport MAY_WRITE, topic_rights
from kstore._fast.record.unpack cimport AT_ONCE_BYTES, Verdict, claimed_bytes, max_unpacked_bytes
from kstore._fast.broker.produce_request cimport ProducePartition, ProduceTopic

cdef enum:
    LEAST_WORK_BYTES = 1024         # the minimum cost of a check


cdef list find_packed(
    PartitionTable table, ProduceRequest request, object rights, dict verdicts, int64_t* budget
):
    cdef const ProduceTopic* topic
    cdef TopicEntry entry
    cdef Py_ssize_t i
    cdef list found = []
    for i in range(request.topic_count):
        topic = &request.topics[i]
        entry = table.find_id(topic.name.data) if request.by_id \
            else table.find_name(topic.name.data, topic.name.size)
        if entry is not None and (
                rights is None or topic_rights(rights, entry.name) & MAY_WRITE):
            find_in_topic(request, topic, entry, verdicts, budget, found)
    return found or None


cdef int find_in_topic(
    ProduceRequest request, const ProduceTopic* topic, TopicEntry entry, dict verdicts,
    int64_t* budget, list found
) except -1:
    cdef const ProducePartition* part
    cdef Partition partition
    cdef int64_t work
    cdef Py_ssize_t place
    for place in range(topic.first, topic.first + topic.count):
        part = &request.partitions[place]
        if not 0 <= part.index < len(entry.partitions):
            continue
        if verdicts is not None and place in verdicts:
            continue
        partition = <Partition>entry.partitions[part.index]
        work = work_of(partition, part.records)
        if work > AT_ONCE_BYTES or work > budget[0]:
            found.append((
                place, (<const char*>part.records.data)[:part.records.size],
                max_unpacked_bytes(part.records.size, partition.core.plan.max_message_bytes),
                partition.stored_codec, partition.stored_level))
        else:
            budget[0] -= work
    return 0


cdef int64_t work_of(Partition partition, WireBytes records) except -1:
    """The maximum number of bytes that a check reads; 0: none is needed."""
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
    if claimed < 0:                         # a broken batch may contain anything
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


cdef class FrameMemory:
    """The bytes of a request that threads append from."""

    def __dealloc__(self):
        if self.owns:
            free(self.data)


cdef class ProduceJob(AppendJob):
    """A batch of a request, appended by a thread."""

    cdef int ended(self) except -1:
        return self.partition.end_append(self)

    cdef int go_on(self) except -1:
        return self.group.one_done()


cdef class ProduceAppends:
    """The appends by threads for the first remaining request of a connection. Each batch is
    appended once, even if the request is handled several times.
    """

    def __init__(self, AnswerSink sink not None):
        self.sink = sink
        self.jobs = {}
        self.fresh = []

    cdef int add(
        self, Py_ssize_t place, Partition partition, WireBytes records, bytearray anew, int origin,
        Verdict seen
    ) except -1:
        cdef ProduceJob job = ProduceJob.__new__(ProduceJob)
        job.core = partition.core
        job.data = <uint8_t*>records.data
        job.size = job.frame_bytes = records.size
        if anew is not None:
            job.data = <uint8_t*>PyByteArray_AS_STRING(anew)
            job.size = len(anew)
            job.keeps = anew
        job.leader_epoch = partition.leader_epoch
        job.origin = origin
        job.seen = seen
        job.partition = partition
        job.replication = partition.replication
        job.group = self
        self.jobs[place] = job
        self.fresh.append(job)
        return 0

    cdef FrameMemory submit(self, uint8_t* frame, uint8_t* was):
        cdef FrameMemory memory = FrameMemory.__new__(FrameMemory)
        cdef ProduceJob job
        memory.data = frame
        fresh, self.fresh = self.fresh, []
        self.missing += len(fresh)
        for job in fresh:
            if job.keeps is None:
                job.data = frame + (job.data - was)
                job.keeps = memory
            (<AppendQueue>job.core.appends).submit(job)
        return memory

    cdef int one_done(self) except -1:
        self.missing -= 1
        if self.missing == 0:
            (<object>self.sink).admitted()
        return 0
