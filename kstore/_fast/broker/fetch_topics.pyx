"""The partitions that a Fetch request names, in its frame, for each version.

fetch_path handles them together.
"""

from libc.stdint cimport int32_t, int64_t

from kstore._fast.error_codes cimport (
    NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION)
from kstore._fast.broker.fetch_session cimport FetchPart
from kstore._fast.broker.partition cimport TopicEntry
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.protocol.wire cimport (
    WireBytes, read_int32, read_int64, read_raw, read_some, read_topic, read_unsigned, skip_tags)

cdef enum:
    FIRST_LOG_START_OFFSET = 5
    FIRST_LEADER_EPOCH = 9
    FIRST_FLEXIBLE = 12
    FIRST_TOPIC_ID = 13
    REPLICA_STATE_TAG = 1


cdef int parse_topics(
    WireReader* r, int version, PartitionTable table, list named
) except -1:
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef bint by_id = version >= FIRST_TOPIC_ID
    cdef Py_ssize_t topics = read_some(r, flexible)
    cdef Py_ssize_t partitions, i, j
    cdef WireBytes topic
    cdef TopicEntry entry
    cdef bytes key
    cdef FetchPart part
    cdef bint repeats = topics > 1                  # perhaps
    cdef int32_t before
    for i in range(topics):
        topic = read_topic(r, by_id, flexible)
        if topic.size < 0:
            r.bad = True
            return 0
        before = -1
        entry = table.find_id(topic.data) if by_id else table.find_name(topic.data, topic.size)
        if entry is None:
            key = (<const char*>topic.data)[:topic.size]
        else:
            key = entry.topic_id if by_id else entry.name
        partitions = read_some(r, flexible)
        for j in range(partitions):
            part = parse_part(r, version, entry, key)
            repeats |= part.index <= before
            before = part.index
            named.append(part)
            if r.bad:
                return 0
        skip_tags(r, flexible)
        if r.bad:
            return 0
    if repeats:
        keep_last(named)
    return 0


cdef int keep_last(list named) except -1:
    """For a partition that is named twice: the last entry, in the first one's place, as in Kafka.
    """
    cdef FetchPart part
    cdef dict kept = {}
    for part in named:
        kept[part.topic, part.index] = part
    if len(kept) < len(named):
        named[:] = kept.values()
    return 0


cdef FetchPart parse_part(WireReader* r, int version, TopicEntry entry, bytes key):
    cdef FetchPart part = FetchPart.__new__(FetchPart)
    part.topic = key
    part.by_id = version >= FIRST_TOPIC_ID
    part.index = read_int32(r)
    part.current_leader_epoch = read_int32(r) if version >= FIRST_LEADER_EPOCH else -1
    part.fetch_offset = read_int64(r)
    part.last_fetched_epoch = read_int32(r) if version >= FIRST_FLEXIBLE else -1
    if version >= FIRST_LOG_START_OFFSET:
        part.reader_start_offset = read_int64(r)
    part.max_bytes = read_int32(r)
    part.told_high_watermark = -1
    part.told_log_start_offset = -1
    skip_tags(r, version >= FIRST_FLEXIBLE)
    if entry is not None and 0 <= part.index < len(entry.partitions):
        part.partition = entry.partitions[part.index]
    return part


cdef list refused_parts(list parts, int version):
    """The answer for these if the request fails as a whole, as in Kafka."""
    cdef FetchPart part
    if version >= FIRST_TOPIC_ID:
        return []
    for part in parts:
        part.error = UNKNOWN_SERVER_ERROR
        part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
        part.diverging_epoch = part.preferred_replica = -1
    return parts


cdef bint is_news(list parts) noexcept:
    """Whether a partition must be answered at once, or there is none to wait for. An unknown or
    forbidden partition is answered when the others have data.
    """
    cdef FetchPart part
    cdef bint waits = False
    for part in parts:
        if part.error == NONE:
            if part.diverging_epoch >= 0 or part.preferred_replica >= 0:
                return True
            waits = True
        elif part.error != UNKNOWN_TOPIC_OR_PARTITION and part.error != UNKNOWN_TOPIC_ID \
                and part.error != TOPIC_AUTHORIZATION_FAILED:
            return True
    return not waits


cdef int parse_forgotten(WireReader* r, int version, list forgotten) except -1:
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef bint by_id = version >= FIRST_TOPIC_ID
    cdef Py_ssize_t topics = read_some(r, flexible)
    cdef Py_ssize_t partitions, i, j
    cdef WireBytes topic
    for i in range(topics):
        topic = read_topic(r, by_id, flexible)
        if topic.size < 0:
            r.bad = True
            return 0
        key = (<const char*>topic.data)[:topic.size]
        partitions = read_some(r, flexible)
        for j in range(partitions):
            forgotten.append((key, read_int32(r)))
            if r.bad:
                return 0
        skip_tags(r, flexible)
    return 0


cdef int parse_replica_state(
    WireReader* r, int32_t* replica_id, int64_t* replica_epoch
) except -1:
    cdef int64_t count = read_unsigned(r)
    cdef int64_t tag
    cdef WireBytes field
    cdef WireReader inner
    while count > 0 and not r.bad:
        count -= 1
        tag = read_unsigned(r)
        field = read_raw(r, <Py_ssize_t>read_unsigned(r))
        if tag == REPLICA_STATE_TAG and not r.bad:
            inner.p = field.data
            inner.end = field.data + field.size
            inner.bad = False
            replica_id[0] = read_int32(&inner)
            replica_epoch[0] = read_int64(&inner)
            r.bad = inner.bad
    return 0
