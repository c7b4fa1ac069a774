"""A parked answer's place in the order of its connection, and how an answer's frame is opened and
closed.

Nothing here knows what is parked or why; the connection is the sink, and keeps the order.
"""

from libc.stdint cimport int64_t

from kstore._fast.record.buffer cimport store_int32
from kstore._fast.protocol.wire cimport put_int32, put_no_tags, room


cdef enum:
    HEADER_BYTES = 9                        # of an answer


cdef Py_ssize_t begin_answer(AnswerBuffer out, int32_t correlation_id, bint flexible) except -1:
    cdef Py_ssize_t start = out.size
    room(out, HEADER_BYTES)
    put_int32(out, 0)
    put_int32(out, correlation_id)
    put_no_tags(out, flexible)
    out.earlier_bytes = out.slice_bytes
    return start


cdef int end_answer(AnswerBuffer out, Py_ssize_t start) noexcept:
    cdef int64_t files = out.slice_bytes - out.earlier_bytes
    store_int32(out.data + start, <int32_t>(out.size - start - 4 + files))
    return 0


cdef class AnswerSink:
    """Where answers go: one per connection."""

    cdef AnswerBuffer open_answer(self, Slot slot):
        raise NotImplementedError("a sink knows where an answer goes")

    cdef int close_answer(self, Slot slot) except -1:
        raise NotImplementedError("a sink knows where an answer goes")

    cdef int abandon(self, Slot slot) except -1:
        raise NotImplementedError("a sink knows where an answer goes")

    cdef object listener_name(self):
        return None

    cdef object principal_name(self):
        return None

    cdef object rights(self):
        return None


cdef class Slot(Waiter):
    """The place of one request that is answered later."""

    cdef int cancel(self) except -1:
        return 0

    cdef int end_wait(self) except -1:
        return 0

    def give_up(self):
        """No answer can be given: close the connection, as its order is lost."""
        if not self.done:
            self.sink.abandon(self)

    cpdef int complete(self, body) except -1:
        """Give the answer's body (None: no answer is sent) and send what is next in order."""
        cdef AnswerBuffer out
        if self.done:
            return 0
        if body is None:
            self.held = None
        else:
            out = self.sink.open_answer(self)
            out.write(body)
        self.sink.close_answer(self)
        return 0

    def open_large(self, Py_ssize_t size):
        """Where the body of a large answer, of so many bytes, is written in several turns of the
        loop; `close_large` sends it."""
        self.held = AnswerBuffer(size + HEADER_BYTES)
        self.start = begin_answer(self.held, self.correlation_id, self.flexible)
        return self.held

    def close_large(self):
        """The large answer is complete: send it when it is next in order."""
        if not self.done:
            self.sink.close_answer(self)
