# The partitions that a Fetch request names, in its frame.

from libc.stdint cimport int32_t, int64_t

from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.protocol.wire cimport WireReader

# All leave r after the bytes that they read; r.bad: malformed.
# Appends a FetchPart for each requested partition.
cdef int parse_topics(
    WireReader* r, int version, PartitionTable table, list named) except -1
# The tagged fields: the id of the replica, if they have it.
cdef int parse_replica_state(
    WireReader* r, int32_t* replica_id, int64_t* replica_epoch) except -1
# Appends (topic name or id, partition) for each one that the session must forget.
cdef int parse_forgotten(WireReader* r, int version, list forgotten) except -1

# The parts in the answer of a request that fails as a whole.
cdef list refused_parts(list parts, int version)

# Whether a first look at these has found something to answer at once.
cdef bint is_news(list parts) noexcept
