# A connection's answers: their order, and how they are sent.

from libc.stdint cimport int32_t, int64_t

from kstore._fast.network.data_plane cimport DataPlane
from kstore._fast.network.request_times cimport TimedRequest
from kstore._fast.broker.slots cimport AnswerSink, Slot
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef class Outbox(AnswerSink):
    cdef DataPlane plane
    cdef readonly str peer
    cdef object transport
    cdef int fd                             # -1: every answer goes through the transport (TLS)
    cdef bint closed
    cdef bint write_paused
    cdef bint draining                      # drain() is scheduled
    cdef list slots                         # Slot, in the order of their requests
    cdef int64_t held_bytes                 # answers that wait for an earlier one
    cdef list leaving                       # TimedRequest, whose answers are not all sent
    # The bytes that a full socket did not accept.
    cdef list unsent                        # AnswerBuffer; None: nothing is left
    cdef int64_t unsent_bytes
    cdef int writer                         # a duplicate of fd that the loop watches, or -1
    cdef bint transport_full                # of a TLS connection, which has no writer
    cdef int64_t progress_ms                # when the peer last accepted bytes
    # The connection's use of this turn of the loop.
    cdef int64_t taken_bytes, given_bytes   # read, sent
    cdef int64_t spent_us                   # on its requests
    cdef bint noted                         # begin_turn() will be called in the next one
    cdef bint hungry                        # it has used up its share
    cdef Slot park(self, int32_t correlation_id, bint flexible)
    cdef AnswerBuffer buffer_for_answer(self)
    cdef int queue_answer(self, AnswerBuffer out) except -1
    cdef int take_done(self) except -1
    cdef int flush(self) except -1
    cdef int take_time(self, TimedRequest timed, bint leaves) except -1
    cdef int end_leaving(self, bint lost) except -1
    cdef int end_time(self, TimedRequest timed, int64_t now, bint lost) except -1
    cdef int lose_times(self, list slots) except -1
    cdef int note_taken(self, bint all_of_it) except -1
    cdef int note_given(self, int64_t size) except -1
    cdef int end_unsent(self) except -1
    cdef int feed(self) except -1
    cdef int hand_over(self, AnswerBuffer out) except -1
    cdef int handle_outcome(self, int outcome, AnswerBuffer out) except -1
    cdef int keep(self, AnswerBuffer out) except -1
    cdef int watch(self) except -1
    cdef int forget_unsent(self) except -1
    cdef int fail_malformed(self, str name, int version) except -1
    cdef int fail(self, str reason) except -1
    cdef int go_on(self) except -1          # more answers are allowed; see the connection
    cdef int regulate(self) except -1
