# A parked answer's place in the order of its connection. A sink (the connection) hands answers to
# its peer in the order of the requests; whoever parked the request completes its slot later, on
# the loop.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.broker.partition_events cimport Waiter
from kstore._fast.broker.replica_state cimport ReplicationContext
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef class AnswerSink:
    # of the Produce request at hand, what threads have found: a batch's place in it -> Verdict
    cdef public dict verdicts
    # whether who asks wants kstore's tagged fields in answers (docs/protocol-extensions.md)
    cdef readonly bint extended
    cdef object appends         # and what they append of it (ProduceAppends); None: nothing
    cdef AnswerBuffer open_answer(self, Slot slot)      # where to write it, header included
    cdef int close_answer(self, Slot slot) except -1    # it is complete: send what is next in order
    cdef int abandon(self, Slot slot) except -1         # it cannot be given: the connection ends
    cdef Py_ssize_t waiting(self) noexcept              # the number of its requests that wait
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
    cdef object timed                   # network.request_times.TimedRequest, or None
    cdef int64_t deadline_ms            # when `expire` is called, while it is among SlotDeadlines
    cdef int cancel(self) except -1     # the connection is gone
    cdef int end_wait(self) except -1   # wait for nothing that is only for the peer's good
    cdef int expire(self) except -1     # it has waited as long as it may
    cdef int end_gathering(self) except -1      # its time to wait for more data is over
    cpdef int complete(self, body) except -1

# Slots that wait a moment for more data.
cdef class Gathering:
    cdef object call_later
    cdef list young                         # added since the timer was set
    cdef list old
    cdef bint running                       # whether the timer runs
    cdef int add(self, Slot slot) except -1
    cdef int set_timer(self) except -1

cdef class SlotDeadlines:
    cdef ReplicationContext context         # the clock
    cdef object call_later                  # None: no time is ever over
    cdef dict waiting                       # Slot -> None
    cdef object timer
    cdef int64_t timer_ms                   # when it goes off
    cdef int add(self, Slot slot, int64_t wait_ms) except -1
    cdef int drop(self, Slot slot) except -1
    cdef int set_timer(self, int64_t deadline_ms, int64_t now_ms) except -1

# Writes an answer's size (patched by end_answer) and header; returns where it starts.
cdef Py_ssize_t begin_answer(AnswerBuffer out, int32_t correlation_id, bint flexible) except -1
cdef int end_answer(AnswerBuffer out, Py_ssize_t start) noexcept
