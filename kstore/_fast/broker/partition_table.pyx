"""The partitions that this broker knows, looked up by topic name or id and by index.

It opens no log and decides nothing about leaders: kstore.broker.runtime fills it. Everything runs
on the loop.
"""

from libc.string cimport memcmp

from kstore._fast.broker.partition cimport Partition

cdef enum:
    TOPIC_ID_BYTES = 16


cdef class PartitionTable(PartitionEvents):
    """All topics, with lookups that decode nothing; call_soon runs the wakeups of one loop turn
    together.
    """

    def __init__(self, int node_id, call_soon):
        super().__init__(node_id, call_soon)
        self.by_name = {}
        self.by_id = {}

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
        cdef TopicEntry last = self.last_by_id
        if last is not None and memcmp(<const char*>last.topic_id, topic_id, TOPIC_ID_BYTES) == 0:
            return last
        last = self.by_id.get((<const char*>topic_id)[:TOPIC_ID_BYTES])
        if last is not None:
            self.last_by_id = last
        return last

    cdef bint lacks_leader(self, Partition partition) except -1:
        return partition is not None and not partition.online \
            and partition.leader_id in self.lost_leaders

    def add_topic(self, TopicEntry entry):
        """Add a topic; its partitions follow with add_partition."""
        self.last = self.last_by_id = None
        self.by_name[entry.name] = entry
        self.by_id[entry.topic_id] = entry

    def add_partition(self, Partition partition):
        """Set a partition in its topic."""
        cdef list partitions = partition.entry.partitions
        while len(partitions) <= partition.index:
            partitions.append(None)
        partition.events = self
        partitions[partition.index] = partition

    def remove_topic(self, bytes name):
        """Remove a topic; requests that wait for one of its partitions get an error."""
        cdef TopicEntry entry = self.by_name.pop(name, None)
        if entry is None:
            return
        self.by_id.pop(entry.topic_id, None)
        self.last = self.last_by_id = None
        self.cut(entry, 0)

    def remove_partitions(self, bytes name, int first):
        """Remove a topic's partitions from an index on, as `remove_topic` does."""
        cdef TopicEntry entry = self.by_name.get(name)
        if entry is not None:
            self.cut(entry, first)

    cdef int cut(self, TopicEntry entry, int first) except -1:
        cdef Partition partition
        for partition in entry.partitions[first:]:
            if partition is not None:
                partition.deleted = True
                partition.online = partition.follows = False
                partition.end_leadership()
        # No reference cycle: each of the others is freed with its last user.
        entry.partitions = entry.partitions[:first]

    def topic(self, bytes name):
        """The TopicEntry with that name, or None."""
        return self.by_name.get(name)

    def topic_by_id(self, bytes topic_id):
        """The TopicEntry with that id, or None."""
        return self.by_id.get(topic_id)

    def partition(self, bytes name, int index):
        """The Partition, or None if this broker does not know it."""
        cdef TopicEntry entry = self.by_name.get(name)
        if entry is None or index < 0 or index >= len(entry.partitions):
            return None
        return entry.partitions[index]

    def topics(self):
        """All TopicEntry objects, in order of creation."""
        return list(self.by_name.values())
