# The partitions that a Fetch request names, as its frame holds them.

from libc.stdint cimport int32_t, int64_t

from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.protocol.wire cimport WireReader

# All leave r behind what they read; r.bad: it is malformed.
# Appends a FetchPart for each partition that is asked for.
cdef int parse_topics(
    WireReader* r, int version, PartitionTable table, list named) except -1
# The tagged fields: which replica it is, if they say so.
cdef int parse_replica_state(
    WireReader* r, int32_t* replica_id, int64_t* replica_epoch) except -1
# Appends (topic name or id, partition) for each that the session is to forget.
cdef int parse_forgotten(WireReader* r, int version, list forgotten) except -1

# Of a request that fails as a whole: the parts that its answer names.
cdef list refused_parts(list parts, int version)

# Whether a first look at these has found what is told at once.
cdef bint is_news(list parts) noexcept
