# KIP-951: the leader of a partition, and its endpoint, for clients that asked the wrong broker.

from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef enum:
    LEADER_TAG_BYTES = 11

# Takes LEADER_TAG_BYTES.
cdef int put_leader(AnswerBuffer out, int tag, Partition partition) noexcept
# The tagged fields at an answer's end: leaders is a list of node ids, or None.
cdef int write_endpoints(
    AnswerBuffer out, PartitionTable table, list leaders, listener) except -1
