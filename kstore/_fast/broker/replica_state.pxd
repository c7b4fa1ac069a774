# The leader's view of one replicated partition: the progress of each follower, those that hold the
# high watermark back, and its waiters.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.log.log_core cimport LogCore

# A waiter until the high watermark reaches end_offset: answered once, on the loop.
cdef class CommitWait:
    cdef int64_t end_offset
    cdef int answer(self, int16_t error) except -1

# What all partitions of a broker share.
cdef class ReplicationContext:
    cdef public object clock                # callable() -> monotonic ms; None: the machine's clock
    cdef public int64_t max_lag_ms          # replica.lag.time.max.ms
    cdef public dict live                   # node id -> broker epoch; None: not known yet
    cdef public dict racks                  # node id -> rack (bytes) of brokers that have one
    cpdef int64_t now_ms(self) except -1
    cdef bint is_live(self, int32_t node_id) except -1
    cdef bint is_stale(self, int32_t node_id, int64_t broker_epoch) except -1

cdef class Follower:
    cdef readonly int32_t node_id
    cdef readonly int64_t log_end_offset    # of its last fetch; -1: none under this leader
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t broker_epoch      # of its last fetch; -1: not sent
    cdef readonly int64_t last_caught_up_ms
    cdef readonly int64_t last_fetch_ms
    cdef int64_t leader_end_offset          # at its last fetch
    cdef readonly bint in_isr               # the committed one
    cdef readonly bint proposed             # in the proposed one
    cdef int64_t told_high_watermark        # in the last answer to it
    cdef int64_t sent_offset                # of the last records that were sent to it; -1: none

cdef class ReplicaState:
    cdef LogCore core
    cdef ReplicationContext context
    cdef readonly int64_t epoch_start_offset    # the start of this leader's epoch
    cdef readonly int32_t insync_replicas   # the committed ISR's size, this broker included
    cdef int32_t maximal_replicas           # including the proposal's
    cdef int32_t min_insync_replicas
    cdef list followers
    cdef bint alone                         # no follower can hold the high watermark back
    cdef list waits                         # CommitWait, by end offset
    cdef readonly Py_ssize_t most_waiting   # the most waiting requests of one connection
    cdef readonly int passes                # moves during which no follower waits for more
    cdef int misses                         # consecutive waits for more that were in vain
    cdef public tuple lost_parts            # (first, next offset) of damage that no replica has
    cdef Follower find(self, int32_t node_id)
    cdef int32_t nearest(self, int32_t node_id, bytes rack, int64_t offset) except -2
    cdef int set_replicas(self, int32_t node_id, tuple replicas, tuple isr) except -1
    cdef int set_isr(self, tuple isr, tuple proposed) except -1
    cdef int note_fetch(
        self, Follower follower, int64_t fetch_offset, int64_t log_start_offset, int64_t now_ms
    ) except -1
    cdef int note_append(self, int64_t end_offset) except -1
    cdef bint may_join(self, Follower follower) except -1
    cdef bint holds_back(self, Follower follower, int64_t now_ms) except -1
    cdef bint advance(self, int64_t now_ms) except -1
    cdef int add_wait(self, CommitWait wait) except -1
    cdef int drop_wait(self, CommitWait wait) except -1
    cdef int release(self) except -1
    cdef int note_pipelined(self, Py_ssize_t depth) noexcept
    cdef bint expects_more(self, int64_t size_bytes) noexcept
    cdef int note_gathered(self) noexcept
    cdef int note_missed(self) noexcept
    cdef int fail(self, int16_t error) except -1
