"""A fetch's part for one partition, and the fetch session (KIP-227) that remembers it between
requests.

kstore.broker.state.replication.fetch_session_cache decides which sessions are kept; fetch_path
reads.
"""

cimport cython

from kstore._fast.error_codes cimport NONE, OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED
from kstore._fast.broker.replica_state cimport ReplicaState
from kstore._fast.broker.rights cimport (
    CLUSTER, FETCH_REQUEST, MAY_ACT_IN_CLUSTER, MAY_READ, TOPIC, note_denied, topic_rights,
)
from kstore._fast.log.log_core cimport LogCore


@cython.freelist(256)
cdef class FetchPart:
    """A partition of a fetch: the request, the last values in a response, and the current state of
    the log.
    """

    cdef int resolve(self, PartitionTable table) except -1:
        """Find the partition (again, if its topic was deleted or not yet known). A topic that was
        created again must be sent, even if it looks like the old one.
        """
        cdef TopicEntry entry
        cdef const unsigned char* topic = self.topic
        if self.partition is not None and not self.partition.deleted:
            return 0
        self.partition = None
        self.told_high_watermark = -1
        entry = table.find_id(topic) if self.by_id else table.find_name(topic, len(self.topic))
        if entry is not None and 0 <= self.index < len(entry.partitions):
            self.partition = entry.partitions[self.index]
        return 0

    cdef bint is_unchanged(self) noexcept:
        """Whether a look would again find nothing for this follower; the values to send are already
        here. A follower that is not in the ISR may join: look.
        """
        cdef Partition partition = self.partition
        return (
            self.follower is not None and self.follower.in_isr
            and partition.online and not partition.deleted
            and partition.leader_epoch == self.seen_epoch
            and partition.core.log_end_offset == self.seen_end_offset
            and partition.core.high_watermark == self.high_watermark
            and partition.core.log_start_offset == self.log_start_offset)

    cdef int set_unchanged(self, Follower follower) except -1:
        """There is nothing to read: no look is needed until something changes."""
        self.follower = follower
        self.seen_epoch = self.partition.leader_epoch
        self.seen_end_offset = self.partition.core.log_end_offset
        return 0

    cdef int16_t check_offset(self) except -1:
        """Check that the log has the offset, and the same records before it: NONE, or an error."""
        cdef LogCore core = self.partition.core
        if self.last_fetched_epoch >= 0:
            self.check_divergence()
            if self.error != NONE or self.diverging_epoch >= 0:
                return self.error
        if core.log_start_offset <= self.fetch_offset <= core.log_end_offset:
            return NONE
        return OFFSET_OUT_OF_RANGE

    cdef int check_divergence(self) except -1:
        """KIP-595: find where the log of a reader whose last epoch is not in this log diverges."""
        cdef LogCore core = self.partition.core
        if self.last_fetched_epoch == core.epochs.latest_epoch \
                and self.fetch_offset <= core.log_end_offset:
            return 0
        epoch, end_offset = self.partition.end_offset_for_epoch(self.last_fetched_epoch)
        if end_offset < 0:
            self.error = OFFSET_OUT_OF_RANGE
        elif epoch < self.last_fetched_epoch or end_offset < self.fetch_offset:
            self.diverging_epoch = epoch
            self.diverging_end_offset = end_offset
        return 0

    cdef int prefer(self, int32_t here, bytes rack) except -1:
        """KIP-392: send a consumer to a replica in its rack."""
        cdef ReplicaState replication = self.partition.replication
        cdef int32_t node_id
        if replication is not None:
            node_id = replication.nearest(here, rack, self.fetch_offset)
            if node_id != here:
                self.preferred_replica = node_id
        return 0

    cdef bint expects_more(self) noexcept:
        """Whether more records for a follower are expected in a moment, after those found."""
        cdef Partition partition = self.partition
        return (
            partition.replication is not None
            and self.slice.next_offset == partition.core.log_end_offset
            and partition.replication.expects_more(self.slice.size_bytes))

    cdef bint still_expects(self) noexcept:
        """Whether more is still expected; or, if nothing was found, whether nothing has changed."""
        cdef Partition partition = self.partition
        if self.slice.size_bytes == 0:
            return self.is_unchanged()
        return (
            partition.replication is not None and not partition.deleted
            and self.current_leader_epoch == partition.leader_epoch
            and partition.replication.expects_more(self.slice.size_bytes))

    cdef int end_gathering(self, bint come) noexcept:
        """End a follower's wait for more records; ``come``: whether they have arrived."""
        if self.slice.size_bytes > 0 and self.partition.replication is not None:
            if come:
                self.partition.replication.note_gathered()
            else:
                self.partition.replication.note_missed()
        return 0

    cdef int16_t check_rights(
        self, object sink, object rights, bint barred, PartitionTable table
    ) except -1:
        """Whether a consumer with these rights (None: all) may read the topic, existing or not; a
        barred client may not. For an unknown id, the error says that instead.
        """
        cdef bytes name = self.topic
        cdef TopicEntry entry
        if barred:
            note_denied(sink, FETCH_REQUEST, MAY_ACT_IN_CLUSTER, CLUSTER, b"kafka-cluster")
            return TOPIC_AUTHORIZATION_FAILED
        if rights is None:
            return NONE
        if self.partition is not None:
            name = self.partition.entry.name
        elif self.by_id:
            entry = table.find_id(<const unsigned char*>self.topic)
            if entry is None:
                return NONE
            name = entry.name
        if topic_rights(rights, name) & MAY_READ:
            return NONE
        note_denied(sink, FETCH_REQUEST, MAY_READ, TOPIC, name)
        return TOPIC_AUTHORIZATION_FAILED

    cdef bint has_news(self) noexcept:
        """Whether an incremental answer must name this partition."""
        return (
            self.error != NONE or self.slice.size_bytes > 0 or self.diverging_epoch >= 0
            or self.preferred_replica >= 0
            or self.told_high_watermark != self.high_watermark
            or self.told_log_start_offset != self.log_start_offset)

    cdef int told(self) noexcept:
        """Remember the answer's values; after an error, the next answer names the partition
        again.
        """
        self.told_high_watermark = -1 if self.error != NONE else self.high_watermark
        self.told_log_start_offset = self.log_start_offset
        return 0


cdef class FetchSession:
    """One client's set of partitions, with the last values that were sent for each."""

    def __init__(
        self, int session_id, list parts, *, principal, listener, bint by_id, bint privileged,
        now_ms
    ):
        cdef FetchPart part
        self.session_id = session_id
        self.epoch = 1
        self.principal = principal
        self.listener = listener
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.parts = {}
        for part in parts:
            self.parts[part.topic, part.index] = part

    @property
    def size(self):
        """The number of its partitions."""
        return len(self.parts)

    cdef bint belongs_to(self, object principal, object listener) except -1:
        """Whether it was opened by that principal, on that listener."""
        return self.principal == principal and self.listener == listener

    cdef bint merge(self, list named, list forgotten) except -1:
        """Apply an incremental request: changed and new partitions, then those to forget. True:
        there are more or fewer now.
        """
        cdef FetchPart part, known
        cdef Py_ssize_t size = len(self.parts)
        for part in named:
            known = self.parts.get((part.topic, part.index))
            if known is None:
                self.parts[part.topic, part.index] = part
            else:
                known.follower = None
                known.fetch_offset = part.fetch_offset
                known.max_bytes = part.max_bytes
                known.current_leader_epoch = part.current_leader_epoch
                known.last_fetched_epoch = part.last_fetched_epoch
                known.reader_start_offset = part.reader_start_offset
        for key in forgotten:
            self.parts.pop(key, None)
        self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1
        return len(self.parts) != size

    cdef int rotate(self, FetchPart part) except -1:
        """Move a partition that returned data to the end, so a full answer starves none."""
        key = (part.topic, part.index)
        if self.parts.pop(key, None) is not None:
            self.parts[key] = part
        return 0
