"""The leader's view of one replicated partition: the progress of each follower, those that hold the
high watermark back, and its waiters.

The high watermark is the smallest log end offset of the replicas that are in sync or proposed
(KIP-497's maximal ISR), and never decreases. With flush=always the leader's own log counts up to
its durable offset; a follower fetches again only when its records are on disk. The ISR is agreed
with the controller elsewhere (kstore.broker.runtime.replication.isr); this module sends no requests
and sets no timers.
"""

from kstore._fast.log.clock cimport now_ms as machine_ms
from kstore._fast.error_codes cimport NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND

cdef int64_t NEVER = -(1LL << 60)

cdef enum:
    LARGE_BATCH_BYTES = 4 * 1024    # a follower waits for more only if its batches have this size,
    BULK_BYTES = 48 * 1024          # and the expected ones have this size together
    ENOUGH_BYTES = 256 * 1024       # it gets this much without waiting
    MOST_MISSES = 7                 # 2 << 7: the longest pause, in moves of the high watermark


cdef class CommitWait:
    """Waits until the high watermark has reached an offset."""

    cdef int answer(self, int16_t error) except -1:
        return 0


cdef class ReplicationContext:
    """What the replicated partitions of a broker share: the clock, the tolerated lag, and the live
    brokers.
    """

    def __init__(self, *, max_lag_ms=30_000):
        self.max_lag_ms = max_lag_ms
        self.racks = {}

    cpdef int64_t now_ms(self) except -1:
        """The time in milliseconds; monotonic."""
        return machine_ms() if self.clock is None else self.clock()

    cdef bint is_live(self, int32_t node_id) except -1:
        return self.live is None or node_id in self.live

    cdef bint is_stale(self, int32_t node_id, int64_t broker_epoch) except -1:
        """Whether the broker has registered again since that epoch (KIP-903)."""
        return broker_epoch >= 0 and self.live is not None \
            and <int64_t>self.live.get(node_id, -1) > broker_epoch


cdef class Follower:
    """The state of one follower."""

    def __init__(self, int node_id):
        self.node_id = node_id
        self.log_end_offset = self.log_start_offset = self.broker_epoch = -1
        self.leader_end_offset = self.told_high_watermark = self.sent_offset = -1
        self.last_caught_up_ms = self.last_fetch_ms = NEVER


cdef class ReplicaState:
    """The replicas' progress in a partition that this broker leads, and its waiters."""

    def __init__(self, LogCore core not None, ReplicationContext context not None):
        self.core = core
        self.context = context
        self.followers = []
        self.waits = []
        self.lost_parts = ()
        self.min_insync_replicas = 1

    cdef Follower find(self, int32_t node_id):
        cdef Follower follower
        for follower in self.followers:
            if follower.node_id == node_id:
                return follower
        return None

    cdef int32_t nearest(self, int32_t node_id, bytes rack, int64_t offset) except -2:
        """The preferred replica of a rack to read the offset from: this broker if it is in that
        rack, else the in-sync follower with the most records; -1 if there is none.
        """
        cdef Follower follower
        cdef Follower best = None
        if self.context.racks.get(node_id) == rack:
            return node_id
        for follower in self.followers:
            if (follower.in_isr and self.context.racks.get(follower.node_id) == rack
                    and follower.log_start_offset <= offset <= follower.log_end_offset
                    and self.context.is_live(follower.node_id)
                    and (best is None or follower.log_end_offset > best.log_end_offset)):
                best = follower
        return -1 if best is None else best.node_id

    cdef int set_replicas(self, int32_t node_id, tuple replicas, tuple isr) except -1:
        """Apply an assignment. A new leader knows nothing about its followers; a leader with a new
        epoch keeps its knowledge.
        """
        cdef Follower follower
        cdef int64_t now_ms = self.context.now_ms()
        cdef list followers = []
        for replica in replicas:
            if replica == node_id:
                continue
            follower = self.find(replica)
            if follower is None:
                follower = Follower(replica)
            if replica in isr:                      # its time starts again with each epoch
                follower.last_caught_up_ms = now_ms
            followers.append(follower)
        self.followers = followers
        self.epoch_start_offset = self.core.log_end_offset
        return self.set_isr(isr, None)

    cdef int set_isr(self, tuple isr, tuple proposed) except -1:
        """The ISR that the controller knows, and the proposed one (None: none)."""
        cdef Follower follower
        self.insync_replicas = self.maximal_replicas = <int32_t>len(isr)
        self.alone = True
        for follower in self.followers:
            follower.in_isr = follower.node_id in isr
            follower.proposed = proposed is not None and follower.node_id in proposed
            self.maximal_replicas += follower.proposed and not follower.in_isr
            self.alone = self.alone and not (follower.in_isr or follower.proposed)
        return 0

    cdef int note_fetch(
        self, Follower follower, int64_t fetch_offset, int64_t log_start_offset, int64_t now_ms
    ) except -1:
        """A follower fetches from an offset on: it has the records before it."""
        cdef int64_t end = self.core.log_end_offset
        if fetch_offset >= end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif fetch_offset >= follower.leader_end_offset:
            # It has all records that existed at its previous fetch.
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.leader_end_offset = end
        follower.last_fetch_ms = now_ms
        return 0

    cdef int note_append(self, int64_t end_offset) except -1:
        """The log has grown from this end: followers at that end were caught up until now, and
        without new records they do not report it.
        """
        cdef Follower follower
        cdef int64_t now_ms = self.context.now_ms()
        for follower in self.followers:
            if follower.log_end_offset == end_offset:
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        return 0

    cdef bint may_join(self, Follower follower) except -1:
        """Whether a follower outside the ISR has caught up."""
        return (
            follower.log_end_offset >= self.core.high_watermark
            and follower.log_end_offset >= self.epoch_start_offset
            and self.context.is_live(follower.node_id))

    cdef bint holds_back(self, Follower follower, int64_t now_ms) except -1:
        """Whether the high watermark waits for a follower: it is in sync, or so near that it could
        never join if the high watermark ran ahead of it.
        """
        if follower.in_isr or follower.proposed:
            return True
        return (
            now_ms - follower.last_caught_up_ms <= self.context.max_lag_ms
            and self.context.is_live(follower.node_id))

    cdef bint advance(self, int64_t now_ms) except -1:
        """Raise the high watermark as far as the replicas allow, and answer waiters; returns
        whether it moved. With fewer in sync than a write needs, it stays (KIP-966).
        """
        cdef Follower follower
        cdef int64_t end = self.core.visible_end()
        if self.insync_replicas < self.min_insync_replicas:
            return False
        for follower in self.followers:
            if follower.log_end_offset < end and self.holds_back(follower, now_ms):
                end = follower.log_end_offset
        if end <= self.core.high_watermark:
            return False
        self.core.high_watermark = end
        self.core.note_end()
        self.release()
        return True

    cdef int add_wait(self, CommitWait wait) except -1:
        """Insert it by end offset; usually at the end."""
        cdef Py_ssize_t at = len(self.waits)
        while at > 0 and (<CommitWait>self.waits[at - 1]).end_offset > wait.end_offset:
            at -= 1
        self.waits.insert(at, wait)
        return 0

    cdef int drop_wait(self, CommitWait wait) except -1:
        """There are no waiters any more."""
        if wait in self.waits:
            self.waits.remove(wait)
        return 0

    cdef int release(self) except -1:
        """Answer those whose offset the high watermark has reached, in order."""
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t size = len(self.waits)
        cdef int64_t reached = self.core.high_watermark
        cdef int16_t error = NONE
        while count < size and (<CommitWait>self.waits[count]).end_offset <= reached:
            count += 1
        if count == 0:
            return 0
        if self.maximal_replicas < self.min_insync_replicas:
            error = NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if self.passes > 0:
            self.passes -= 1
        done = self.waits[:count]
        del self.waits[:count]
        for wait in done:
            (<CommitWait>wait).answer(error)
        return 0

    cdef int note_pipelined(self, Py_ssize_t depth) noexcept:
        """Note that ``depth`` requests of one connection wait for their responses; some may be for
        other partitions.
        """
        self.most_waiting = max(self.most_waiting, min(depth, <Py_ssize_t>len(self.waits)))
        return 0

    cdef bint expects_more(self, int64_t size_bytes) noexcept:
        """Whether a follower that lacks ``size_bytes`` should wait for the batches that follow: a
        producer that has received its responses sends as many large batches as before. False if
        batches are small, or in a pause after a wait in vain.
        """
        cdef Py_ssize_t waiting = len(self.waits)
        return (
            0 < waiting < self.most_waiting and self.passes == 0
            and waiting * LARGE_BATCH_BYTES <= size_bytes < ENOUGH_BYTES
            and size_bytes * self.most_waiting >= waiting * BULK_BYTES)

    cdef int note_gathered(self) noexcept:
        """Note that a follower has waited for more records, and gets them."""
        if len(self.waits) >= self.most_waiting:
            self.misses = 0
        return 0

    cdef int note_missed(self) noexcept:
        """Note that a follower has waited for more records in vain: expect fewer, and pause the
        waits, longer each time.
        """
        if 0 < len(self.waits) < self.most_waiting:
            self.most_waiting = len(self.waits)
            self.misses = min(self.misses + 1, <int>MOST_MISSES)
            self.passes = 2 << self.misses
        return 0

    cdef int fail(self, int16_t error) except -1:
        """Answer all waiters with an error: this broker no longer leads. Fetch sessions that
        remember these followers look again.
        """
        cdef Follower follower
        waits, self.waits = self.waits, []
        for follower in self.followers:
            follower.in_isr = follower.proposed = False
        for wait in waits:
            (<CommitWait>wait).answer(error)
        return 0

    @property
    def waiting(self):
        """The number of waiters for the high watermark."""
        return len(self.waits)

    def follower(self, int node_id):
        """The Follower with that id, or None."""
        return self.find(node_id)
