# A parked answer's place in the order of its connection. A sink (the connection) sends answers in
# the order of the requests; the code that parked the request completes its slot later, on the loop.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.broker.partition_events cimport Waiter
from kstore._fast.broker.replica_state cimport ReplicationContext
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef class AnswerSink:
    # for the current Produce request, the checks by threads: a batch's place in it -> Verdict
    cdef public dict verdicts
    # whether the client asked for kstore's tagged fields (docs/protocol-extensions.md)
    cdef readonly bint extended
    cdef object appends         # and the appends by threads (ProduceAppends), or None
    cdef AnswerBuffer open_answer(self, Slot slot)      # where to write it, including the header
    cdef int close_answer(self, Slot slot) except -1    # complete: send the next answers in order
    cdef int abandon(self, Slot slot) except -1         # no answer is possible: the connection ends
    cdef Py_ssize_t waiting(self) noexcept              # the number of its waiting requests
    cdef object listener_name(self)                     # its listener
    cdef object principal_name(self)                    # its principal
    cdef object rights(self)                            # and its rights; None: all

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
    cdef int end_wait(self) except -1   # do not wait for more data
    cdef int expire(self) except -1     # its maximum wait is over
    cdef int end_gathering(self) except -1      # its time to wait for more data is over
    cpdef int complete(self, body) except -1

# Slots that wait briefly for more data.
cdef class Gathering:
    cdef object call_later
    cdef list young                         # added since the timer was set
    cdef list old
    cdef bint running                       # whether the timer runs
    cdef int add(self, Slot slot) except -1
    cdef int set_timer(self) except -1

cdef class SlotDeadlines:
    cdef ReplicationContext context         # the clock
    cdef object call_later                  # None: no deadline ever passes
    cdef dict waiting                       # Slot -> None
    cdef object timer
    cdef int64_t timer_ms                   # when it goes off
    cdef int add(self, Slot slot, int64_t wait_ms) except -1
    cdef int drop(self, Slot slot) except -1
    cdef int set_timer(self, int64_t deadline_ms, int64_t now_ms) except -1

# Writes an answer's size (set by end_answer) and header; returns its start.
cdef Py_ssize_t begin_answer(AnswerBuffer out, int32_t correlation_id, bint flexible) except -1
cdef int end_answer(AnswerBuffer out, Py_ssize_t start) noexcept
