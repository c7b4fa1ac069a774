# The partitions that this broker knows; the data plane looks them up by topic name or id, then by
# index. The table has no files and does not decide about leaders: kstore/broker/runtime fills it.

from libc.stdint cimport uint8_t

from kstore._fast.broker.partition cimport Partition, TopicEntry
from kstore._fast.broker.partition_events cimport PartitionEvents

cdef class PartitionTable(PartitionEvents):
    cdef dict by_name
    cdef dict by_id
    # callable(node id, listener) -> bytes of a NodeEndpoint, or None; None: no hints
    cdef public object node_endpoint
    # recently lost leaders; usually None: there are none
    cdef public set lost_leaders
    # hold(connection, partition or None, ...), runtime/metadata/leader_waits.py
    cdef public object leader_waits
    cdef TopicEntry last                    # of the last look-up by name
    cdef TopicEntry last_by_id
    # whether the partition's leader was lost recently; only if there are lost ones
    cdef bint lacks_leader(self, Partition partition) except -1
    cdef TopicEntry find_name(self, const uint8_t* name, Py_ssize_t size)
    cdef TopicEntry find_id(self, const uint8_t* topic_id)
    # forget partitions from an index on
    cdef int cut(self, TopicEntry entry, int first) except -1
