# A parked answer's place in the order of its connection. A sink (the connection) hands answers to
# its peer in the order of the requests; whoever parked the request completes its slot later, on
# the loop.

from libc.stdint cimport int16_t, int32_t, uint8_t

from kstore._fast.broker.partition_events cimport Waiter
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef class AnswerSink:
    # of the Produce request at hand, what threads have found: a batch's place in it -> Verdict
    cdef public dict verdicts
    cdef object appends         # and what they append of it (ProduceAppends); None: nothing
    cdef AnswerBuffer open_answer(self, Slot slot)      # where to write it, header included
    cdef int close_answer(self, Slot slot) except -1    # it is complete: send what is next in order
    cdef int abandon(self, Slot slot) except -1         # it cannot be given: the connection ends
    cdef object listener_name(self)                     # that its peer has come to
    cdef object principal_name(self)                    # who its peer is
    cdef object rights(self)                            # and what it may do now; None: everything

cdef class Slot(Waiter):
    cdef AnswerSink sink
    cdef int32_t correlation_id
    cdef bint flexible                  # the answer's header has tagged fields
    cdef bint done
    cdef AnswerBuffer held              # the answer, while an earlier one is not complete
    cdef Py_ssize_t start               # where the answer begins in its buffer
    cdef int cancel(self) except -1     # the connection is gone
    cdef int end_wait(self) except -1   # wait for nothing that is only for the peer's good
    cpdef int complete(self, body) except -1

# Writes an answer's size (patched by end_answer) and header; returns where it starts.
cdef Py_ssize_t begin_answer(AnswerBuffer out, int32_t correlation_id, bint flexible) except -1
cdef int end_answer(AnswerBuffer out, Py_ssize_t start) noexcept
