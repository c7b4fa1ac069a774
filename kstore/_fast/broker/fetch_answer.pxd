# A Fetch answer from its first topic on, and its records.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.broker.fetch_session cimport FetchPart
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.protocol.wire cimport AnswerBuffer

# The reader for whom it is written.
cdef struct Reader:
    int version
    bint committed                  # it reads no aborted transactions
    int32_t replica_id              # -1: a consumer
    bint extended                   # it gets partition epochs (KIP-232)

cdef int find_slice(
    FetchPart part, int64_t end, int64_t limit, bint min_one, int32_t replica_id,
    report) except -1
cdef int write_head(
    AnswerBuffer out, int version, int16_t error, int32_t session_id, PartitionTable table
) except -1
# The same without waiting for a disk. False: data is being read, and the request's
# resume() is called then.
cdef bint find_readable(
    FetchPart part, int64_t end, int64_t limit, bint min_one, int32_t replica_id, report,
    object request) except -1
cdef int64_t write_topics(
    list parts, const Reader* reader, PartitionTable table, listener, AnswerBuffer out, report
) except -1
