# The pieces of a Fetch answer.

from libc.stdint cimport int32_t, int64_t

from kstore._fast.broker.fetch_session cimport FetchPart
from kstore._fast.broker.partition_table cimport Partition, PartitionTable
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef Py_ssize_t count_topics(list parts) except -1
cdef int find_slice(
    FetchPart part, int64_t end, int64_t limit, bint min_one, int32_t replica_id,
    report) except -1
cdef bint put_slice(
    FetchPart part, int32_t replica_id, AnswerBuffer out, report) except -1
cdef int write_aborted(FetchPart part, bint committed, bint flexible, AnswerBuffer out) except -1
cdef int write_part_tags(FetchPart part, AnswerBuffer out) noexcept
cdef bint misdirected(FetchPart part) noexcept
cdef int write_answer_tags(list parts, PartitionTable table, listener, AnswerBuffer out) except -1
