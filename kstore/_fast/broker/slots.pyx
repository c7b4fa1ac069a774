"""A parked answer's place in the order of its connection, the beginning and end of an answer's
frame, and a shared timer for many waits.

This module does not know what is parked or why; the connection is the sink, and keeps the order.
"""

from libc.stdint cimport int64_t

from kstore._fast.record.buffer cimport store_int32
from kstore._fast.protocol.wire cimport put_int32, put_no_tags, room


cdef enum:
    HEADER_BYTES = 9                        # of an answer
    EXPIRED_PER_TURN = 500                  # requests whose deadline has passed
    REST_MS = 2                             # between two checks of all that wait

cdef double PERIOD_S = 0.002                # the period of Gathering

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF


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
    """The target of responses: one per connection."""

    cdef AnswerBuffer open_answer(self, Slot slot):
        raise NotImplementedError("a sink knows where an answer goes")

    cdef int close_answer(self, Slot slot) except -1:
        raise NotImplementedError("a sink knows where an answer goes")

    cdef int abandon(self, Slot slot) except -1:
        raise NotImplementedError("a sink knows where an answer goes")

    cdef Py_ssize_t waiting(self) noexcept:
        return 0

    cdef object listener_name(self):
        return None

    cdef object principal_name(self):
        return None

    cdef object rights(self):
        return None


cdef class Slot(Waiter):
    """The place of a request that is answered later."""

    cdef int cancel(self) except -1:
        return 0

    cdef int end_wait(self) except -1:
        return 0

    cdef int expire(self) except -1:
        return 0

    cdef int end_gathering(self) except -1:
        return 0

    def give_up(self):
        """No response is possible: close the connection, because its order is lost."""
        if not self.done:
            self.sink.abandon(self)

    cpdef int complete(self, body) except -1:
        """Set the body of the response (None: no response is sent) and send what is next in
        order.
        """
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
        """A buffer of that size for the body of a large response, written over several turns of the
        loop; `close_large` sends it.
        """
        self.held = AnswerBuffer(size + HEADER_BYTES)
        self.start = begin_answer(self.held, self.correlation_id, self.flexible)
        return self.held

    def close_large(self):
        """The large answer is complete: send it when it is next in order."""
        if not self.done:
            self.sink.close_answer(self)


cdef class Gathering:
    """Slots that wait briefly for more data, for one to two periods of a shared timer, which runs
    only while there are such slots.
    """

    def __init__(self, call_later):
        self.call_later = call_later
        self.young = []
        self.old = []

    cdef int add(self, Slot slot) except -1:
        self.young.append(slot)
        if not self.running:
            self.set_timer()
        return 0

    cdef int set_timer(self) except -1:
        self.running = True
        self.call_later(PERIOD_S, self.end_period)
        return 0

    def end_period(self):
        """End the wait of slots that have waited for a whole period."""
        cdef Slot slot
        self.running = False
        old, self.old, self.young = self.old, self.young, []
        if self.old:
            self.set_timer()
        problem = None
        for slot in old:
            if not slot.done:
                try:
                    slot.end_gathering()
                except Exception as error:      # continue: the others have waited long enough, too
                    problem = error
        if problem is not None:
            raise problem


cdef class SlotDeadlines:
    """Slots with deadlines, and one timer for all of them: a timer for each would cost more than
    the rest of a wait.
    """

    def __init__(self, ReplicationContext context not None, call_later):
        self.context = context
        self.call_later = call_later
        self.waiting = {}

    def slots(self):
        """All waiting slots."""
        return list(self.waiting)

    cdef int add(self, Slot slot, int64_t wait_ms) except -1:
        cdef int64_t now_ms = self.context.now_ms()
        slot.deadline_ms = now_ms + max(wait_ms, <int64_t>0)
        self.waiting[slot] = None
        if self.call_later is not None and (
                self.timer is None or slot.deadline_ms < self.timer_ms):
            self.set_timer(slot.deadline_ms, now_ms)
        return 0

    cdef int drop(self, Slot slot) except -1:
        self.waiting.pop(slot, None)
        return 0

    cdef int set_timer(self, int64_t deadline_ms, int64_t now_ms) except -1:
        if self.timer is not None:
            self.timer.cancel()
        self.timer_ms = deadline_ms
        self.timer = self.call_later(
            max(deadline_ms - now_ms, <int64_t>0) / 1000.0, self.end_waits)
        return 0

    def end_waits(self):
        """Notify slots whose deadline has passed, some in each turn of the loop, and set the timer
        for the next.
        """
        cdef Slot slot
        cdef int64_t now_ms = self.context.now_ms()
        cdef int64_t least = NEVER
        cdef int left = EXPIRED_PER_TURN
        self.timer = None
        try:
            for slot in list(self.waiting):
                if slot.deadline_ms <= now_ms and left > 0:
                    left -= 1
                    slot.deadline_ms = NEVER
                    slot.expire()
        finally:
            for slot in self.waiting:
                least = min(least, slot.deadline_ms)
            if least != NEVER and self.timer is None:
                self.set_timer(max(least, now_ms + REST_MS * (left > 0)), now_ms)
