# The pieces of a Fetch answer.

from kstore._fast.fetch_session cimport FetchPart
from kstore._fast.partition_table cimport PartitionTable
from kstore._fast.wire cimport AnswerBuffer

cdef Py_ssize_t count_topics(list parts) except -1
cdef Py_ssize_t read_slice(FetchPart part, AnswerBuffer out) except -1
cdef int write_aborted(FetchPart part, bint committed, bint flexible, AnswerBuffer out) except -1
cdef int write_part_tags(FetchPart part, AnswerBuffer out) noexcept
cdef bint misdirected(FetchPart part) noexcept
cdef int write_answer_tags(list parts, PartitionTable table, listener, AnswerBuffer out) except -1
