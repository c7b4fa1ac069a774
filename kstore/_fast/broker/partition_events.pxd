# Events of partitions in one turn of the loop, and the requests that wait for them.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.broker.replica_state cimport ReplicationContext
from kstore._fast.log.log_core cimport LogCore

# A waiter for a partition to grow (a parked fetch). check() is called on the loop, once per wake.
cdef class Waiter:
    cdef int check(self) except -1

# Wakes its waiters: a partition.
cdef class Wakeable:
    cdef readonly object log                # kstore.log's Log; None without a replica here
    cdef LogCore core
    cdef bint woken                         # in this turn of the loop
    cdef int wake(self) except -1
    cdef int show_durable(self) except -1   # more of its log is on disk

# Counts of produced and fetched data of a topic, or of all topics, since the start. The first of
# each counts partitions: a request for three partitions counts as three.
cdef class TopicCounts:
    cdef readonly int64_t produce_requests, produce_failed
    cdef readonly int64_t messages_in, bytes_in, bytes_rejected
    cdef readonly int64_t fetch_requests, fetch_failed
    cdef readonly int64_t bytes_out         # to consumers
    cdef readonly int64_t replica_bytes_out
    cdef readonly int64_t replica_bytes_in  # that this broker, as a follower, has copied

    cdef inline void produced(self, int16_t error, int64_t size) noexcept:
        self.produce_requests += 1
        if error:
            self.produce_failed += 1
            self.bytes_rejected += size

    # `total` counts it, too
    cdef inline void appended(self, TopicCounts total, int64_t messages, int64_t size) noexcept:
        self.messages_in += messages
        self.bytes_in += size
        total.messages_in += messages
        total.bytes_in += size

    cdef inline void copied(self, TopicCounts total, int64_t size) noexcept:
        self.replica_bytes_in += size
        total.replica_bytes_in += size

    cdef inline void fetched(self, int16_t error, int64_t size, bint by_replica) noexcept:
        self.fetch_failed += error != 0
        if by_replica:
            self.replica_bytes_out += size
        else:
            self.bytes_out += size

cdef enum:
    OF_PRODUCE = 0                          # API keys, for ErrorCounts
    OF_FETCH = 1

# The errors in answers since the start: (API key, error code) -> count.
cdef class ErrorCounts:
    cdef readonly dict counts
    cpdef int add(self, int api_key, int error, int64_t count=*) except -1

cdef class PartitionEvents:
    cdef readonly int32_t node_id
    cdef object call_soon
    cdef readonly ReplicationContext replication
    cdef public object on_isr_change        # callable(partition, ISR to propose), or None
    cdef public bint rack_aware             # consumers are sent to a replica of their rack
    # Fetches of followers that wait for any change: each has parts of most partitions, and finding
    # the changed ones is cheaper than waiting for each.
    cdef dict followers                     # Waiter -> None
    cdef bint followers_woken
    cdef list woken
    cdef bint scheduled
    # callable([(log, end offset)]): sync it soon; None: no syncs
    cdef public object on_unsynced
    cdef public object call_threadsafe      # call_soon, from other threads
    cdef dict unsynced                      # Wakeable -> None: grown, with flush=always
    cdef list synced                        # of which more is on disk
    cdef bint synced_scheduled
    cdef readonly TopicCounts counts        # of all topics
    cdef readonly ErrorCounts errors        # of all answers of this broker
    cdef readonly int64_t isr_shrinks, isr_expands, isr_refusals
    cdef int note_isr(self, Py_ssize_t before, Py_ssize_t after) except -1
    cdef int schedule(self, Wakeable partition) except -1
    cdef int schedule_followers(self) except -1
    cdef int wake_soon(self) except -1
    cdef int sync_soon(self, Wakeable partition) except -1
