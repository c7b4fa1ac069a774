"""A Fetch answer: topics and partitions, a partition's fields besides its records, and the leader
for clients that asked the wrong broker (KIP-951).

fetch_path decides what is read, and for whom.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kstore._fast.record.batch cimport BATCH_HEADER_SIZE, BatchInfo, write_batch_header
from kstore._fast.disk.page_reader cimport ColdRead
from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, NONE, NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE)
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.log.batch_order cimport Order, begin_order
from kstore._fast.log.log_view cimport Slice
from kstore._fast.broker.node_hints cimport put_leader, write_endpoints
from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.partition_events cimport OF_FETCH
from kstore._fast.broker.replica_state cimport Follower, ReplicaState
from kstore._fast.broker.sending cimport FileSlice, add_slice
from kstore._fast.log.slice_checks cimport (
    CHECK_ALL, CHECK_HEADERS, STEP_BYTES, Depth, bring_in, depth_for_reader, hurry, is_good_copy,
    is_good_in_file, read_in_slice, readable_bytes)
from kstore._fast.protocol.wire cimport (
    put_count, put_int8, put_int16, put_int32, put_int64, put_no_tags, put_raw, put_string,
    put_unsigned, room)

from kstore._fast.disk.page_reader import NotInMemory

cdef enum:
    MOST_WAITS = 8                  # for one offset; after that the reader waits for the disk
    FIRST_LOG_START_OFFSET = 5
    FIRST_SESSION = 7
    FIRST_RACK = 11
    FIRST_FLEXIBLE = 12
    FIRST_ENDPOINTS = 16            # KIP-951
    DIVERGING_EPOCH_TAG = 0
    LEADER_TAG = 1
    PARTITION_EPOCH_TAG = 23200


cdef int write_head(
    AnswerBuffer out, int version, int16_t error, int32_t session_id, PartitionTable table
) except -1:
    if error:
        table.errors.add(OF_FETCH, error)
    room(out, 16)
    put_int32(out, 0)                               # throttle time
    if version >= FIRST_SESSION:
        put_int16(out, error)
        put_int32(out, session_id)
    return 0


cdef int64_t write_topics(
    list parts, const Reader* reader, PartitionTable table, listener, AnswerBuffer out, report
) except -1:
    """The topics, with adjacent partitions of a topic together, and the end of the answer; returns
    the bytes of its records.
    """
    cdef bint flexible = reader.version >= FIRST_FLEXIBLE
    cdef FetchPart part
    cdef bytes topic = None
    cdef int64_t size, written = 0
    cdef Py_ssize_t i, count
    room(out, 8)
    put_count(out, count_topics(parts), flexible)
    for i in range(len(parts)):
        part = <FetchPart>parts[i]
        if topic is None or part.topic != topic:
            if topic is not None:
                room(out, 1)
                put_no_tags(out, flexible)
            topic = part.topic
            room(out, len(topic) + 16)
            if part.by_id:
                put_raw(out, <const uint8_t*><const char*>topic, 16)
            else:
                put_string(out, <const uint8_t*><const char*>topic, len(topic), flexible)
            count = 1
            while i + count < len(parts) and (<FetchPart>parts[i + count]).topic == topic:
                count += 1
            put_count(out, count, flexible)
        size = write_part(part, reader, out, report)
        written += size
        if part.error:
            table.errors.add(OF_FETCH, part.error)
        table.counts.fetched(part.error, size, reader.replica_id >= 0)
        if part.partition is not None:
            part.partition.entry.counts.fetched(part.error, size, reader.replica_id >= 0)
    room(out, 2)
    if topic is not None:
        put_no_tags(out, flexible)
    if reader.version >= FIRST_ENDPOINTS:
        write_answer_tags(parts, table, listener, out)
    else:
        put_no_tags(out, flexible)
    return written


cdef int64_t write_part(FetchPart part, const Reader* reader, AnswerBuffer out, report) except -1:
    """One partition's answer; returns the bytes of records in it."""
    cdef int version = reader.version
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef int64_t size = part.slice.size_bytes
    cdef Py_ssize_t start = out.size
    room(out, 128)
    put_int32(out, part.index)
    put_int16(out, part.error)
    put_int64(out, part.high_watermark)
    put_int64(out, part.last_stable_offset)
    if version >= FIRST_LOG_START_OFFSET:
        put_int64(out, part.log_start_offset)
    write_aborted(part, reader.committed, flexible, out)
    room(out, 64)
    if version >= FIRST_RACK:
        put_int32(out, part.preferred_replica)
    put_count(out, size, flexible)
    if size > 0 and not put_slice(part, reader.replica_id, out, report):
        out.size = start
        return write_part(part, reader, out, report)
    part.file = None
    if flexible:
        write_part_tags(part, version >= FIRST_ENDPOINTS, reader.extended, out)
    return part.slice.size_bytes


cdef Py_ssize_t count_topics(list parts) except -1:
    """The number of topics; adjacent partitions of one topic are together."""
    cdef FetchPart part
    cdef bytes topic = None
    cdef Py_ssize_t count = 0
    for part in parts:
        if topic is None or part.topic != topic:
            topic = part.topic
            count += 1
    return count


cdef int find_slice(
    FetchPart part, int64_t end, int64_t limit, bint min_one, int32_t replica_id, report
) except -1:
    """Find the batches below `end` that fit into the part's answer, or its error. A replica gets an
    empty batch for records that no replica has any more.
    """
    cdef Partition partition = part.partition
    cdef bint out_of_range = False
    part.file = None
    try:
        part.file = partition.core.locate(
            part.fetch_offset, end, limit, min_one, &part.slice, &out_of_range)
    except OSError as problem:
        if note_problem(part, problem, replica_id, report):
            return 0
    if part.file is None:
        part.slice.size_bytes = 0
    if out_of_range:
        part.error = OFFSET_OUT_OF_RANGE
    return 0


cdef bint note_problem(FetchPart part, problem, int32_t replica_id, report) except -1:
    """Set the part's error for an unreadable log; True: nothing is left to read."""
    cdef Partition partition = part.partition
    if getattr(problem, "error_code", NONE) == CORRUPT_MESSAGE:
        if replica_id >= 0 and is_lost(part, problem):
            return True
        part.error = CORRUPT_MESSAGE        # the log has reported it
    else:                                   # no descriptor is left, or the disk fails
        partition.note_error(problem)
        where = str(partition.log.topic_partition)
        report(f"{where} can't be read: {problem}", f"{where} can't be read")
        part.error = KAFKA_STORAGE_ERROR
    return False


cdef bint find_readable(
    FetchPart part, int64_t end, int64_t limit, bint min_one, int32_t replica_id, report,
    object request
) except -1:
    """As find_slice, but data that is not in memory is read first. When the same request looks
    again, the data counts as present, so it never waits forever.
    """
    cdef LogCore core = part.partition.core
    cdef ColdRead seen = None
    cdef bint found
    if part.cold is None and core.examining is not None:
        part.cold = None if core.examining.done else core.examining
        core.examining = part.cold
    if part.cold is not None:
        if not part.cold.done:
            part.cold.join(request.resume)
            part.file = None
            return False
        if part.cold_offset == part.fetch_offset:
            seen = part.cold
        if isinstance(part.cold.problem, OSError):
            note_problem(part, part.cold.problem, replica_id, report)
            part.cold = None
            return True
        part.cold = None
    if part.waits < MOST_WAITS:
        hurry(core)
    try:
        found = find_in_memory(part, end, limit, min_one, replica_id, report, request, seen)
    except NotInMemory as lacking:
        found = False
        note_wait(part, bring_in(lacking, request.resume))
    finally:
        core.hurried = 0
    if found:
        part.waits = 0
    return found


cdef bint find_in_memory(
    FetchPart part, int64_t end, int64_t limit, bint min_one, int32_t replica_id, report,
    object request, ColdRead seen
) except -1:
    """False: data is being read. Raises NotInMemory if data must be read."""
    cdef LogCore core = part.partition.core
    cdef int64_t size
    try:
        size = readable_bytes(core, part.fetch_offset, max(limit, <int64_t>1), seen)
        if size == 0 and wait_for(part, min(max(limit, <int64_t>1), <int64_t>STEP_BYTES), request):
            return False
    except OSError:                         # as find_slice will find
        size = limit
    find_slice(part, end, min(limit, max(size, <int64_t>1)), min_one, replica_id, report)
    if part.file is None or part.slice.size_bytes <= size:
        return True
    # one batch, larger than requested
    return readable_bytes(
        core, part.fetch_offset, part.slice.size_bytes, seen) >= part.slice.size_bytes \
        or not wait_for(part, part.slice.size_bytes, request)


cdef bint wait_for(FetchPart part, int64_t size, object request) except -1:
    """Whether the data is being read into memory."""
    cdef ColdRead cold = read_in_slice(
        part.partition.core, part.fetch_offset, size, request.resume)
    if cold is not None:
        note_wait(part, cold)
    return cold is not None


cdef int note_wait(FetchPart part, ColdRead cold) except -1:
    if part.cold_offset != part.fetch_offset:
        part.waits = 0
    part.waits += 1
    part.cold = cold
    part.cold_offset = part.fetch_offset
    part.file = None
    part.slice.size_bytes = 0
    return 0


cdef bint is_lost(FetchPart part, problem) except -1:
    """Whether no replica has the damaged records there; if so, send an empty batch with their
    offsets, which is in no file.
    """
    cdef ReplicaState replication = part.partition.replication
    if replication is None \
            or (problem.first_offset, problem.next_offset) not in replication.lost_parts:
        return False
    part.slice.position = -1
    part.slice.size_bytes = BATCH_HEADER_SIZE
    part.slice.base_offset = part.fetch_offset
    part.slice.next_offset = problem.next_offset
    return True


cdef int put_empty_batch(FetchPart part, AnswerBuffer out) except -1:
    """Write a batch without records, in the leader epoch of its last offset."""
    cdef BatchInfo info
    cdef Order order
    begin_order(
        part.partition.core.epochs, part.slice.next_offset - 1, part.slice.next_offset, &order)
    memset(&info, 0, sizeof(info))
    info.base_offset = part.slice.base_offset
    info.last_offset_delta = <int32_t>(part.slice.next_offset - 1 - part.slice.base_offset)
    info.partition_leader_epoch = order.epoch
    info.base_timestamp = info.max_timestamp = -1
    info.producer_id = info.producer_epoch = info.base_sequence = -1
    info.size_bytes = BATCH_HEADER_SIZE
    room(out, BATCH_HEADER_SIZE)
    write_batch_header(out.data + out.size, &info)
    out.size += BATCH_HEADER_SIZE
    return 0


cdef Depth depth_for(FetchPart part, int32_t replica_id) except *:
    """How much of the part's records to check. A replica that fetches the same records again could
    not append them.
    """
    cdef Follower follower
    cdef bint again
    if replica_id < 0 or part.partition.replication is None:
        return depth_for_reader(part.partition.core, part.fetch_offset, &part.slice)
    follower = part.partition.replication.find(replica_id)
    if follower is None:
        return CHECK_HEADERS
    again = follower.sent_offset == part.fetch_offset
    follower.sent_offset = part.fetch_offset
    return CHECK_ALL if again else CHECK_HEADERS


cdef bint put_slice(
    FetchPart part, int32_t replica_id, AnswerBuffer out, report
) except -1:
    """Append the part's records to the buffer. False: the file lacks data that the log knows, and
    the part was searched again. Records that a thread must check are omitted now: the next fetch
    waits for that.
    """
    cdef LogCore core = part.partition.core
    cdef Py_ssize_t slices = 0 if out.slices is None else len(out.slices)
    hurry(core)
    try:
        return put_checked(part, replica_id, out, report)
    except NotInMemory as lacking:
        core.examining = bring_in(lacking, None)
        if out.slices is not None and len(out.slices) > slices:
            out.slice_bytes -= (<FileSlice>out.slices.pop()).size_bytes
        part.slice.size_bytes = 0
        return False
    finally:
        core.hurried = 0


cdef bint put_checked(
    FetchPart part, int32_t replica_id, AnswerBuffer out, report
) except -1:
    cdef LogCore core = part.partition.core
    cdef Slice told = part.slice
    cdef int64_t size = told.size_bytes
    cdef Depth depth
    if part.file is None:
        put_empty_batch(part, out)
        return True
    depth = depth_for(part, replica_id)
    if add_slice(out, part.file, told.position, size):
        if is_good_in_file(core, part.file, &told, depth):
            return True
        out.slices.pop()
        out.slice_bytes -= size
    else:
        room(out, size + 64)
        if part.file.read_into(out.data + out.size, size, told.position) != size:
            report(f"{part.file.path} ends before the {size} bytes at {told.position} "
                   "that its log has", f"{part.file.path} ends too early")
            part.error = KAFKA_STORAGE_ERROR
            part.slice.size_bytes = 0
            return False
        if is_good_copy(core, out.data + out.size, &told, depth):
            out.size += size
            return True
    find_slice(part, told.next_offset, size, True, replica_id, report)
    if part.slice.position == told.position and part.slice.size_bytes == size:
        part.error = CORRUPT_MESSAGE
        part.slice.size_bytes = 0
    return False


cdef int write_aborted(FetchPart part, bint committed, bint flexible, AnswerBuffer out) except -1:
    """The aborted transactions that the records overlap; null for read_uncommitted."""
    if not committed or part.error != NONE:
        put_count(out, 0 if part.error != NONE else -1, flexible)
        return 0
    aborted = ()
    if part.slice.size_bytes > 0:
        aborted = part.partition.log.aborted_transactions(part.fetch_offset, part.slice.next_offset)
    room(out, 8 + 17 * len(aborted))
    put_count(out, len(aborted), flexible)
    for producer_id, first_offset in aborted:
        put_int64(out, producer_id)
        put_int64(out, first_offset)
        put_no_tags(out, flexible)
    return 0


cdef bint misdirected(FetchPart part) noexcept:
    """Whether the answer must name the leader, because the client has outdated metadata (KIP-951,
    version 16 on).
    """
    return part.partition is not None and part.partition.leader_id >= 0 and (
        part.error == NOT_LEADER_OR_FOLLOWER or part.error == FENCED_LEADER_EPOCH)


cdef int write_part_tags(
    FetchPart part, bint hints, bint extended, AnswerBuffer out
) noexcept:
    """The diverging epoch; the leader; and, if the client has asked for it, the partition epoch
    (KIP-232).
    """
    cdef bint leader = hints and misdirected(part)
    cdef bint epoch = (
        extended and part.partition is not None and part.partition.partition_epoch >= 0)
    put_int8(out, (part.diverging_epoch >= 0) + leader + epoch)
    if part.diverging_epoch >= 0:
        put_int8(out, DIVERGING_EPOCH_TAG)
        put_int8(out, 13)
        put_int32(out, part.diverging_epoch)
        put_int64(out, part.diverging_end_offset)
        put_int8(out, 0)
    if leader:
        put_leader(out, LEADER_TAG, part.partition)
    if epoch:
        put_unsigned(out, PARTITION_EPOCH_TAG)
        put_int8(out, 4)
        put_int32(out, part.partition.partition_epoch)
    return 0


cdef int write_answer_tags(list parts, PartitionTable table, listener, AnswerBuffer out) except -1:
    """The end of an answer: the endpoints of the leaders that its parts name."""
    cdef FetchPart part
    cdef list leaders = None
    if table.node_endpoint is not None:
        for part in parts:
            if part.error != NONE and misdirected(part):
                if leaders is None:
                    leaders = []
                if part.partition.leader_id not in leaders:
                    leaders.append(part.partition.leader_id)
    return write_endpoints(out, table, leaders, listener)
