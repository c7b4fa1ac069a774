"""The partitions that this broker knows, looked up by topic name or id and by index, and who waits
for each.

It opens no log and decides nothing about leaders: kstore.broker.runtime fills it. Everything runs
on the loop.
"""

from libc.string cimport memcmp

from kstore._fast.error_codes cimport NOT_ENOUGH_REPLICAS
from kstore._fast.log_core cimport ORIGIN_COORDINATOR
from kstore._fast.memory cimport MemoryView, view_of


cdef class Waiter:
    """Whoever waits for a partition to grow; check() is called once per wake."""

    cdef int check(self) except -1:
        return 0


cdef class Partition:
    """One partition as the data plane sees it: its log's core, its leader and who waits
    for it to grow.
    """

    def __init__(self, TopicEntry entry, int index, log, *, int leader_id, int leader_epoch=0):
        self.entry = entry
        self.index = index
        self.log = log
        self.core = None if log is None else log.core
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.online = log is not None
        self.waiters = {}
        self.stored_codec = self.stored_level = -1
        self.insync_replicas = self.min_insync_replicas = 1

    cdef int append(self, uint8_t* data, Py_ssize_t size, int origin, AppendResult* out) except -1:
        self.core.append(data, size, self.leader_epoch, origin, out)
        if out.error_code == 0 and not out.duplicate and self.waiters:
            self.table.schedule(self)
        return 0

    def configure(self, *, int stored_codec, int stored_level, int min_insync_replicas):
        """Store client batches in a codec (-1: as they come), and let acks=all writes need so many
        in-sync replicas.
        """
        self.stored_codec = stored_codec
        self.stored_level = stored_level
        self.min_insync_replicas = min_insync_replicas

    cdef int wake(self) except -1:
        cdef Waiter waiter
        self.woken = False
        for waiter in list(self.waiters):
            waiter.check()
        return 0

    def notify(self):
        """Wake those who wait for this partition: something that they can see has changed."""
        if self.waiters and self.table is not None:
            self.table.schedule(self)

    def append_batches(self, data, *, int origin=ORIGIN_COORDINATOR):
        """Append ready batches and wake who waits; a read-only buffer is copied first.

        Returns (error code, base offset, last offset, log end offset). Raises OSError only.
        """
        cdef MemoryView view
        cdef AppendResult result
        if origin == ORIGIN_COORDINATOR and self.insync_replicas < self.min_insync_replicas:
            return NOT_ENOUGH_REPLICAS, -1, -1, self.core.log_end_offset
        if memoryview(data).readonly:
            data = bytearray(data)
        view = view_of(data, True)
        self.append(view.data, view.size, origin, &result)
        return result.error_code, result.base_offset, result.last_offset, result.log_end_offset

    def replace_log(self, log):
        """Serve the partition from another log that holds the same: it has moved."""
        self.log = log
        self.core = log.core

    @property
    def log_start_offset(self):
        """The first offset that can be read."""
        return self.core.log_start_offset

    @property
    def log_end_offset(self):
        """The offset that the next record gets."""
        return self.core.log_end_offset

    @property
    def high_watermark(self):
        """The offset below which a consumer reads."""
        return self.core.high_watermark

    @property
    def last_stable_offset(self):
        """The offset below which a read_committed consumer reads."""
        return self.core.last_stable_offset

    @property
    def waiting(self):
        """How many fetches wait for this partition."""
        return len(self.waiters)


cdef class TopicEntry:
    """One topic: its name, id and partitions by index (None where this broker has none)."""

    def __init__(self, bytes name, bytes topic_id, *, bint internal=False):
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        self.name = name
        self.topic_id = topic_id
        self.internal = internal
        self.partitions = []


cdef class PartitionTable:
    """All topics, for look-ups that cost no decode; call_soon runs the wake-ups of one
    loop turn together.
    """

    def __init__(self, int node_id, call_soon):
        self.by_name = {}
        self.by_id = {}
        self.node_id = node_id
        self.call_soon = call_soon
        self.woken = []

    cdef TopicEntry find_name(self, const uint8_t* name, Py_ssize_t size):
        cdef TopicEntry last = self.last
        if last is not None and len(last.name) == size:
            if memcmp(<const char*>last.name, name, size) == 0:
                return last
        last = self.by_name.get((<const char*>name)[:size])
        if last is not None:
            self.last = last
        return last

    cdef TopicEntry find_id(self, const uint8_t* topic_id):
        return self.by_id.get((<const char*>topic_id)[:16])

    cdef int schedule(self, Partition partition) except -1:
        if not partition.woken:
            partition.woken = True
            self.woken.append(partition)
            if not self.scheduled:
                self.scheduled = True
                self.call_soon(self.run_woken)
        return 0

    def run_woken(self):
        """Wake the waiters of every partition that grew in this turn of the loop."""
        cdef Partition partition
        woken = self.woken
        self.woken = []
        self.scheduled = False
        for partition in woken:
            partition.wake()

    def add_topic(self, TopicEntry entry):
        """Make a topic known; its partitions follow with add_partition."""
        self.by_name[entry.name] = entry
        self.by_id[entry.topic_id] = entry

    def add_partition(self, Partition partition):
        """Put a partition in its topic's place for it."""
        cdef list partitions = partition.entry.partitions
        while len(partitions) <= partition.index:
            partitions.append(None)
        partition.table = self
        partitions[partition.index] = partition

    def remove_topic(self, bytes name):
        """Forget a topic; who waits for one of its partitions is woken and finds it gone."""
        cdef TopicEntry entry = self.by_name.pop(name, None)
        cdef Partition partition
        if entry is None:
            return
        self.by_id.pop(entry.topic_id, None)
        self.last = None
        for partition in entry.partitions:
            if partition is not None:
                partition.deleted = True
                partition.online = False
                if partition.waiters:
                    self.schedule(partition)

    def topic(self, bytes name):
        """The TopicEntry of that name, or None."""
        return self.by_name.get(name)

    def topic_by_id(self, bytes topic_id):
        """The TopicEntry of that id, or None."""
        return self.by_id.get(topic_id)

    def partition(self, bytes name, int index):
        """The Partition, or None where this broker does not know it."""
        cdef TopicEntry entry = self.by_name.get(name)
        if entry is None or index < 0 or index >= len(entry.partitions):
            return None
        return entry.partitions[index]

    def topics(self):
        """All TopicEntry objects, in order of creation."""
        return list(self.by_name.values())
