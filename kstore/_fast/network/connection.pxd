# One client connection on the loop.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.network.outbox cimport Outbox
from kstore._fast.protocol.wire cimport AnswerBuffer, WireBytes, WireReader

cdef enum:
    OVER_QUOTA = 1                          # why a connection is muted: bits
    NEXT_TURN = 4                           # 2 is the server's, for a wide request

cdef struct RequestHead:
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    bint flexible
    bint flexible_answer                    # the answer's header has tagged fields
    WireBytes client_id

cdef class Connection(Outbox):
    cdef readonly int64_t connection_id
    cdef readonly object listener
    cdef readonly str client_host
    cdef public str principal               # who asks: User:ANONYMOUS, until it is known
    cdef public object authentication       # what takes its frames until it is; or None
    cdef object known_rights                # its principal's, as of the rules that these two say:
    cdef object rights_among                # a look-up table that is another one after each change
    cdef object rights_of                   # the principal
    cdef public int64_t max_frame_bytes
    cdef bint read_paused
    cdef int muted                          # no request is handled until unmute(); why, as bits
    cdef bint admission                     # nor until admitted(): the first one waits for it
    cdef object fate                        # of the first one, which a fault has struck; or None
    cdef public object quotas               # who charges clients (charge, begin, spent), or None
    cdef readonly bytes client_id           # of the last request, while there are quotas
    cdef readonly int64_t last_active_ms
    cdef public bytes hello                 # body of the last ApiVersions request
    cdef public int16_t hello_version
    cdef uint8_t* own                       # what is read of a request that came in pieces
    cdef Py_ssize_t own_capacity, own_end
    cdef int64_t admitted_bytes             # this connection's part of plane.queued_bytes
    cdef int handle_read(self, uint8_t* data, Py_ssize_t size) except -1
    cdef Py_ssize_t handle_frames(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int handle_frame(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int handle_unproven(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int refuse_size(self, int64_t size) except -1
    cdef int serve(self, RequestHead* head, WireReader* r) except -1
    cdef int serve_struck(self, RequestHead* head, WireReader* r) except -1
    cdef int carry_out(self, object fate, RequestHead* head, WireReader* r) except -1
    cdef int route(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int charge(self, int api_key, int64_t size, AnswerBuffer out, Py_ssize_t at) except -1
    cdef object rights(self)
    cdef int handle_produce(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int park_produce(
        self, RequestHead* head, AnswerBuffer out, Py_ssize_t start) except -1
    cdef int handle_fetch(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int handle_other(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int keep_rest(self, uint8_t* data, Py_ssize_t size, bint progress) except -1
    cdef int reserve(self, Py_ssize_t capacity) except -1
    cdef bint admit(self, int64_t size) except? False
    cdef int give_back(self) except -1
    cdef bint may_handle(self) noexcept
    cdef bint wants_budget(self) except? True
