"""A connection's outgoing answers: in the order of the requests, sent by send and sendfile. It
limits the answers in memory to those of a full socket and a few requests.

connection.pyx reads the requests. On a TLS connection the transport sends the answers.
"""

import os

from kstore._fast.log.clock cimport now_ms, now_us
from kstore._fast.broker.sending cimport (
    SEND_BLOCKED, SEND_COLD, SEND_DONE, SEND_LOST, SEND_NO_SENDFILE, SEND_SHORT, copy_slices,
    pin_files, read_next, send_answers, unsent)
from kstore._fast.broker.slots cimport begin_answer, end_answer
from kstore._fast.network.request_times cimport BEHIND, SEND, RequestTimes
from kstore._fast.protocol.wire cimport put_raw, room

cdef enum:
    KEPT_OUT_BYTES = 1024 * 1024            # a larger answer buffer is freed after use
    HANDED_OVER_BYTES = 64 * 1024           # a larger rest is sent from its buffer, not copied
    MAX_UNSENT_BYTES = 64 * 1024            # above this, no further request is handled
    NOTED_BYTES = 64 * 1024                 # below that it is not called in the next turn
    NEW_OUT_BYTES = 64 * 1024


cdef class Outbox(AnswerSink):
    """Sends the answers of one connection."""

    def __cinit__(self):
        self.fd = -1
        self.writer = -1
        self.slots = []
        self.leaving = []

    # ---- the order of the answers ----

    cdef Slot park(self, int32_t correlation_id, bint flexible):
        """Keep a place in the order for an answer that comes later."""
        cdef Slot slot = Slot.__new__(Slot)
        slot.sink = self
        slot.correlation_id = correlation_id
        slot.flexible = flexible
        self.slots.append(slot)
        return slot

    cdef Py_ssize_t waiting(self) noexcept:
        return len(self.slots)

    cdef AnswerBuffer buffer_for_answer(self):
        """The buffer for the answer to the current request: the shared one, if it is next."""
        if self.slots:
            return AnswerBuffer(512)
        self.plane.out.takes_slices = self.fd >= 0
        return self.plane.out

    cdef int queue_answer(self, AnswerBuffer out) except -1:
        """A complete answer: it is in the shared buffer, or waits after a parked one."""
        cdef Slot slot
        if out is self.plane.out:
            return 0
        slot = Slot.__new__(Slot)
        slot.sink = self
        slot.done = True
        slot.held = out
        self.held_bytes += out.size
        self.slots.append(slot)
        return 0

    cdef AnswerBuffer open_answer(self, Slot slot):
        """The shared buffer if the slot is next in order, otherwise a separate one."""
        cdef AnswerBuffer out
        cdef bint next_in_order = len(self.slots) > 0 and self.slots[0] is slot
        if next_in_order and not self.plane.busy and self.plane.out.size == 0:
            out = self.plane.out
            out.takes_slices = self.fd >= 0
        else:
            out = AnswerBuffer(512)
        slot.held = out
        slot.start = begin_answer(out, slot.correlation_id, slot.flexible)
        return out

    cdef int close_answer(self, Slot slot) except -1:
        slot.done = True
        if slot.timed is not None:
            (<TimedRequest>slot.timed).answered()
        if slot.held is not None:
            end_answer(slot.held, slot.start)
        if self.closed:
            if slot.held is self.plane.out:
                self.plane.out.clear()
            return 0
        if slot.held is self.plane.out:
            self.slots.pop(0)
            if slot.timed is not None:
                self.leaving.append(slot.timed)
        elif slot.held is not None:
            self.held_bytes += slot.held.size
        if self.plane.busy:
            if not self.draining:
                self.draining = True
                self.plane.server.call_soon(self.drain)
            return 0
        self.drain()
        return 0

    cdef int abandon(self, Slot slot) except -1:
        """The slot's answer cannot be sent: this breaks the order, so close the
        connection.
        """
        if slot.held is self.plane.out:
            self.plane.out.clear()
        slot.held = None
        slot.done = True
        self.close()
        return 0

    def end_waits(self):
        """The client's session has ended: answer waiting fetches with the data that exists."""
        cdef Slot slot
        for slot in list(self.slots):
            slot.end_wait()

    def drain(self):
        """Send the complete answers that are next in order; continue with what had to wait."""
        self.draining = False
        if self.closed:
            return
        self.take_done()
        self.flush()
        self.go_on()

    cdef int take_done(self) except -1:
        cdef Slot slot
        cdef AnswerBuffer out
        while self.slots and (<Slot>self.slots[0]).done:
            slot = <Slot>self.slots.pop(0)
            if slot.timed is not None:
                self.take_time(<TimedRequest>slot.timed, slot.held is not None)
            if slot.held is None:
                continue
            self.held_bytes -= slot.held.size
            if slot.held.size > HANDED_OVER_BYTES:
                self.flush()                # the answers before it
                self.plane.out = slot.held
                self.flush()
            else:
                out = self.plane.out
                room(out, slot.held.size)
                put_raw(out, slot.held.data, slot.held.size)
        return 0

    cdef int go_on(self) except -1:
        return 0

    cdef int regulate(self) except -1:
        return 0

    # ---- its share of a turn of the loop ----

    cdef int note_taken(self, bint all_of_it) except -1:
        """It has used much of this turn, or its whole share: it is called in the next one."""
        if all_of_it and not self.hungry:
            self.hungry = True
            self.plane.hungry += 1
        if not self.noted:
            self.noted = True
            self.plane.note_taker(self)
        return 0

    cdef int note_given(self, int64_t size) except -1:
        self.given_bytes += size
        if self.given_bytes >= NOTED_BYTES:
            self.note_taken(self.given_bytes >= self.plane.share())
        return 0

    # ---- the socket ----

    cdef int flush(self) except -1:
        """Send the shared buffer; keep what a full socket does not accept."""
        cdef AnswerBuffer out = self.plane.out
        cdef int64_t size = out.size + out.slice_bytes
        cdef int outcome
        if out.size == 0:
            return 0
        if (self.closed and self.unsent is None) or self.transport is None:
            return out.clear()
        self.plane.bytes_out += size
        if self.unsent is not None:
            self.keep(out)
        elif self.fd < 0:
            self.hand_over(out)
        else:
            outcome = send_answers(self.fd, out, self.plane.share() - self.given_bytes)
            self.note_given(size - unsent(out))
            self.handle_outcome(outcome, out)
        if out is self.plane.out:
            out.clear()
            out.shrink(KEPT_OUT_BYTES)
        if self.unsent is None and self.leaving:
            self.end_leaving(self.closed)
        return 0

    cdef int hand_over(self, AnswerBuffer out) except -1:
        """The transport encrypts and sends it, and says when it holds too much. More than its share
        of a turn is kept.
        """
        if out.size <= HANDED_OVER_BYTES:
            self.transport.write((<const char*>out.data)[:out.size])
            return self.note_given(out.size)
        self.keep(out)
        return self.feed()

    cdef int feed(self) except -1:
        """Hand over what was kept, as much as the transport and this turn take."""
        cdef AnswerBuffer out
        cdef int64_t size, share = self.plane.share()
        while self.unsent and not self.transport_full and self.given_bytes < share:
            out = <AnswerBuffer>self.unsent[0]
            size = min(unsent(out), share - self.given_bytes)
            self.transport.write(memoryview(out)[:size])
            if self.unsent is None:
                return 0                    # it has failed, and the connection is lost
            out.sent += size
            self.unsent_bytes -= size
            self.progress_ms = now_ms()
            self.note_given(size)
            if unsent(out) == 0:
                self.unsent.pop(0)
        return 0 if self.unsent else self.end_unsent()

    cdef int handle_outcome(self, int outcome, AnswerBuffer out) except -1:
        """Handle the result of sending a buffer that was not kept yet."""
        cdef AnswerBuffer copy
        if outcome == SEND_NO_SENDFILE:
            copy = copy_slices(out)
            outcome = SEND_SHORT
            if copy is not None:
                outcome = send_answers(self.fd, copy, self.plane.share() - self.given_bytes)
            if outcome == SEND_BLOCKED:
                return self.keep(copy)
        if outcome == SEND_BLOCKED:
            return self.keep(out)
        if outcome != SEND_DONE:
            self.lose(outcome)
        return 0

    def lose(self, int outcome):
        """The answers cannot be completed: drop the connection without sending more."""
        if outcome == SEND_SHORT:
            self.plane.server.closing(
                self, "a segment file became shorter while it was being sent")
        self.closed = True
        self.forget_unsent()
        if self.transport is not None:
            self.transport.abort()

    cdef int keep(self, AnswerBuffer out) except -1:
        """The socket is full, or others go first: keep the rest, and watch the socket."""
        cdef int64_t rest = unsent(out)
        cdef AnswerBuffer kept = out
        if out.slices and not pin_files(out, self.plane.pins):
            kept = copy_slices(out)
            if kept is None:
                self.lose(SEND_SHORT)
                return 0
        elif not out.slices and rest <= HANDED_OVER_BYTES:
            kept = AnswerBuffer(max(rest, 64))
            put_raw(kept, out.data + out.sent, rest)
        elif out is self.plane.out:
            self.plane.out = AnswerBuffer(NEW_OUT_BYTES)
        if self.unsent is None:
            self.unsent = []
            self.progress_ms = now_ms()
            if self.fd >= 0:
                self.watch()
        self.unsent.append(kept)
        self.unsent_bytes += rest
        if self.unsent_bytes > MAX_UNSENT_BYTES and not self.write_paused:
            self.write_paused = True
            self.regulate()
        return 0

    cdef int watch(self) except -1:
        """Have the loop report when the socket accepts more. The transport watches its own
        descriptor for reading, so this watches a duplicate.
        """
        self.writer = os.dup(self.fd)
        self.plane.server.add_writer(self.writer, self.write_more)
        return 0

    def write_more(self):
        """The socket accepts more: send the kept bytes, then continue with the requests."""
        cdef AnswerBuffer out
        cdef int outcome
        cdef int64_t before
        while self.unsent:
            out = <AnswerBuffer>self.unsent[0]
            before = unsent(out)
            outcome = send_answers(self.fd, out, self.plane.share() - self.given_bytes)
            self.unsent_bytes -= before - unsent(out)
            if unsent(out) < before:
                self.progress_ms = now_ms()
                self.note_given(before - unsent(out))
            if outcome == SEND_BLOCKED:
                return
            if outcome == SEND_COLD:
                if read_next(out, self.write_on) is not None:
                    self.plane.server.remove_writer(self.writer)
                    return
            if outcome == SEND_NO_SENDFILE:
                self.unsent[0] = copy_slices(out)
                if self.unsent[0] is None:
                    outcome = SEND_SHORT
            if outcome == SEND_LOST or outcome == SEND_SHORT:
                self.lose(outcome)
                return
            if outcome == SEND_DONE:
                self.unsent.pop(0)
        self.end_unsent()

    def write_on(self):
        """The next data is in memory, or could not be read: continue when the socket is ready."""
        self.progress_ms = now_ms()                 # it was not the peer that was waited for
        if self.writer >= 0:
            self.plane.server.add_writer(self.writer, self.write_more)

    cdef int end_unsent(self) except -1:
        """All kept bytes are sent."""
        self.forget_unsent()
        self.end_leaving(False)
        if self.closed:
            self.transport.close()
            return 0
        self.write_paused = self.transport_full
        return self.go_on()

    cdef int forget_unsent(self) except -1:
        if self.writer >= 0:
            self.plane.server.remove_writer(self.writer)
            os.close(self.writer)
            self.writer = -1
        self.unsent = None
        self.unsent_bytes = 0
        return 0

    # ---- how long it took ----

    cdef int take_time(self, TimedRequest timed, bint leaves) except -1:
        """Its answer is next in order, or it has none."""
        cdef int64_t now = now_us()
        timed.us[BEHIND] += now - timed.mark_us
        timed.mark_us = now
        if leaves:
            self.leaving.append(timed)
            return 0
        return self.end_time(timed, now, False)

    cdef int end_leaving(self, bint lost) except -1:
        """All existing answers are sent, or never will be."""
        cdef int64_t now = now_us()
        cdef TimedRequest timed
        for timed in self.leaving:
            timed.us[SEND] += now - timed.mark_us
            self.end_time(timed, now, lost)
        self.leaving.clear()
        return 0

    cdef int end_time(self, TimedRequest timed, int64_t now, bint lost) except -1:
        """The request has ended: count it, and report it if it was chosen or slow."""
        cdef RequestTimes times = self.plane.times
        times.finish(timed, now, lost)
        if times.tell is not None and times.is_told(timed):
            self.plane.server.call_soon(times.tell, self, timed)
        return 0

    cdef int lose_times(self, list slots) except -1:
        """The connection is gone: drop the answers that were not sent."""
        cdef Slot slot
        for slot in slots:
            if slot.timed is not None:
                if not slot.done:
                    (<TimedRequest>slot.timed).answered()
                self.end_time(<TimedRequest>slot.timed, now_us(), True)
        return self.end_leaving(True)

    # ---- the end ----

    @property
    def is_closed(self):
        """Whether no more answers are sent."""
        return self.closed

    def close(self):
        """Close after the written bytes are sent."""
        self.closed = True
        if self.transport is None:
            return
        if self.unsent is None:
            self.transport.close()
        else:
            self.transport.pause_reading()

    cdef int fail_malformed(self, str name, int version) except -1:
        return self.fail(
            f"its {name} request of version {version} is malformed, or has more than "
            f"{self.plane.max_elements} elements (kstore.request.max.elements)")

    cdef int fail(self, str reason) except -1:
        """Close the connection and report why to the operator."""
        self.flush()
        self.plane.server.closing(self, reason)
        self.close()
        return 0
