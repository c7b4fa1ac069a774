"""Gathers the events of partitions in one turn of the loop: the waiters of a partition that grew
are woken once, and all that grew is synced together.

partition_table.pyx has the partitions, partition.pyx the wake-ups of one.
"""


cdef class Waiter:
    """A waiter for a partition to grow; check() is called once per wake."""

    cdef int check(self) except -1:
        return 0


cdef class Wakeable:
    """The object that waiters wait for: a partition."""

    cdef int wake(self) except -1:
        return 0

    cdef int show_durable(self) except -1:
        return 0


cdef class TopicCounts:
    """Counts of data produced to and fetched from a topic since this broker has it."""

    def note_appended(self, TopicCounts total not None, int64_t messages, int64_t size):
        """Count records that did not arrive in a Produce request, also in ``total``."""
        self.appended(total, messages, size)


cdef class ErrorCounts:
    """The errors in this broker's responses."""

    def __cinit__(self):
        self.counts = {}

    cpdef int add(self, int api_key, int error, int64_t count=1) except -1:
        """Count an error that a response contains so many times."""
        cdef tuple key = (api_key, error)
        self.counts[key] = self.counts.get(key, 0) + count
        return 0


cdef class PartitionEvents:
    """The state that all partitions share: this node's id, wake-ups, and callbacks. Everything runs
    on the loop, except `note_durable`.
    """

    def __init__(self, int node_id, call_soon):
        self.node_id = node_id
        self.call_soon = call_soon
        self.replication = ReplicationContext()
        self.woken = []
        self.followers = {}
        self.call_threadsafe = call_soon
        self.unsynced = {}
        self.synced = []
        self.counts = TopicCounts()
        self.errors = ErrorCounts()

    cdef int note_isr(self, Py_ssize_t before, Py_ssize_t after) except -1:
        """A partition that is led here has another ISR."""
        self.isr_shrinks += after < before
        self.isr_expands += after > before
        return 0

    cdef int schedule(self, Wakeable partition) except -1:
        if not partition.woken:
            partition.woken = True
            self.woken.append(partition)
            self.wake_soon()
        return 0

    cdef int schedule_followers(self) except -1:
        if self.followers and not self.followers_woken:
            self.followers_woken = True
            self.wake_soon()
        return 0

    cdef int wake_soon(self) except -1:
        if not self.scheduled:
            self.scheduled = True
            self.call_soon(self.run_woken)
        return 0

    def run_woken(self):
        """Wake the waiters of every partition that grew in this turn of the loop."""
        cdef Wakeable partition
        cdef Waiter waiter
        woken = self.woken
        self.woken = []
        self.scheduled = False
        if self.followers_woken:
            self.followers_woken = False
            for waiter in list(self.followers):
                waiter.check()
        for partition in woken:
            partition.wake()

    cdef int sync_soon(self, Wakeable partition) except -1:
        """Sync a partition's log, with all that grow in this turn of the loop."""
        if self.on_unsynced is not None:
            if not self.unsynced:
                self.call_soon(self.sync_unsynced)
            self.unsynced[partition] = None
        return 0

    def sync_unsynced(self):
        """Make the appended records durable."""
        cdef Wakeable partition
        unsynced, self.unsynced = self.unsynced, {}
        self.on_unsynced([
            (partition.log, partition.core.log_end_offset) for partition in unsynced
            if partition.core is not None])

    def note_durable(self, Wakeable partition not None):
        """More of a partition is durable: notify the loop. Any thread may call it."""
        self.synced.append(partition)
        if not self.synced_scheduled:
            self.synced_scheduled = True
            self.call_threadsafe(self.run_synced)

    def run_synced(self):
        """Make durable records visible: advance high watermarks, and wake waiters."""
        cdef Wakeable partition
        self.synced_scheduled = False               # first: a thread may add to the list now
        synced, self.synced = self.synced, []
        for partition in synced:
            partition.show_durable()
