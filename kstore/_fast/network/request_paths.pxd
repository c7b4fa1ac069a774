# The paths that answer the requests of a connection.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.network.outbox cimport Outbox
from kstore._fast.network.request_times cimport TimedRequest
from kstore._fast.protocol.wire cimport AnswerBuffer, WireBytes, WireReader

cdef enum:
    API_VERSIONS = 18

cdef enum:
    OVER_QUOTA = 1                          # why a connection is muted: bits
    NEXT_TURN = 4                           # 2 is the server's, for a wide request; 8 SLICE_OVER

cdef struct RequestHead:
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    bint flexible
    bint flexible_answer                    # the answer's header has tagged fields
    WireBytes client_id

cdef class RequestPaths(Outbox):
    cdef readonly object listener
    cdef readonly str client_host
    cdef public str principal               # the client's; User:ANONYMOUS until it is known
    cdef object known_rights                # the principal's rights, for these two:
    cdef object rights_among                # a lookup table, replaced at each change
    cdef object rights_of                   # the principal
    cdef int64_t read_us                    # when the newest bytes arrived
    cdef TimedRequest timed                 # the held request, whose time continues; or None
    cdef int muted                          # no requests until unmute(); the reasons, as bits
    cdef bint admission                     # nor until admitted(): the first one waits for it
    cdef public object quotas               # applies quotas (charge, begin, spent), or None
    cdef readonly bytes client_id           # of the last request, while there are quotas
    cdef readonly bytes hello               # body of the last ApiVersions request
    cdef readonly int16_t hello_version
    cdef int end_read(self) except -1
    cdef int serve(self, RequestHead* head, WireReader* r) except -1
    cdef TimedRequest begin_time(self, RequestHead* head, Py_ssize_t size)
    cdef int end_local(
        self, TimedRequest timed, Py_ssize_t slots, Py_ssize_t out_bytes) except -1
    cdef int serve_charged(self, RequestHead* head, WireReader* r) except -1
    cdef int route(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int charge(self, int api_key, int64_t size, AnswerBuffer out, Py_ssize_t at) except -1
    cdef int handle_produce(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int park_produce(
        self, RequestHead* head, AnswerBuffer out, Py_ssize_t start) except -1
    cdef int handle_fetch(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
    cdef int hold_request(self, int place) except -1
    cdef int handle_other(self, RequestHead* head, WireReader* r, AnswerBuffer out) except -1
