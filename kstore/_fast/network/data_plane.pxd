# The state that all connections of a broker share.

from libc.stdint cimport int16_t, int64_t, uint8_t

from kstore._fast.broker.fetch_path cimport FetchPath
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.produce_path cimport ProducePath
from kstore._fast.network.loop_watch cimport LoopWatch
from kstore._fast.network.request_times cimport RequestTimes
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef enum:
    API_LIMIT = 128                         # places in the table of APIs
    OWN_API = 25300                         # kstore's first own API
    OWN_APIS = 3                            # kstore's own APIs, which have the last places
    READ_BYTES = 256 * 1024                 # of the read buffer that all connections share
    SLICE_OVER = 8                          # a connection is muted: others' requests go first

# An API key's place in the table; -1: none.
cdef inline int api_place(int api_key) noexcept nogil:
    if OWN_API <= api_key < OWN_API + OWN_APIS:
        return API_LIMIT - 1 - (api_key - OWN_API)
    return api_key if 0 <= api_key < API_LIMIT - OWN_APIS else -1

cdef inline int api_key_at(int place) noexcept nogil:
    return OWN_API + API_LIMIT - 1 - place if place >= API_LIMIT - OWN_APIS else place

cdef struct ApiEntry:
    int16_t min_version
    int16_t max_version                     # < min_version: not served
    int16_t flexible_from
    bint cached
    bint in_turns                           # all such requests share a slice of each turn
    int64_t requests

cdef class DataPlane:
    cdef readonly PartitionTable table
    cdef readonly ProducePath produce
    cdef readonly FetchPath fetch
    cdef readonly LoopWatch watch           # the loop's clock
    cdef readonly RequestTimes times
    cdef readonly object server             # kstore.broker.server's: dispatch, park, report, closed
    cdef readonly int64_t max_request_bytes
    cdef readonly int64_t max_queued_bytes  # -1: no limit
    cdef readonly int64_t queued_bytes      # declared sizes of incomplete requests
    cdef readonly int64_t connections_made
    cdef readonly int64_t bytes_out
    cdef readonly int64_t max_elements      # of one request's arrays
    cdef int max_parked                     # per connection
    # The share of a turn of the loop that one connection may use before others have their turn. If
    # many use all of it, they divide this share.
    cdef public int64_t turn_us
    cdef public int64_t turn_bytes          # read, and as many sent
    cdef list takers                        # connections to call in the next turn
    cdef int hungry                         # how many of them have used up their share
    cdef int sharers                        # how many did in the last turn
    cdef readonly int64_t bytes_read        # by all connections
    cdef public int64_t slice_us            # of each turn, for all requests handled in turns
    cdef int64_t slice_spent_us             # of this one
    cdef object waiting                     # deque of connections with such requests, in order
    cdef bint draining                      # they have their turn now
    cdef bint in_turns                      # the current request is one of them
    cdef bint announced                     # next_turn will be called
    # callable(): checks whether other brokers still exist; None: there are none
    cdef public object look_at_peers
    cdef int64_t looked_us
    cdef int look(self) except -1
    cdef public object faults               # injects faults (broker/faults.py), or None
    cdef ApiEntry[128] apis
    cdef public object authorizer           # of broker.state.security; None: all allowed
    cdef dict answers                       # request bytes -> body, until the image changes
    cdef int64_t answers_bytes
    cdef dict answers_errors                # request bytes -> the errors of its cached answer
    cdef public dict last_errors            # of the current answer: code -> count, or None
    cdef public object runs                 # ProduceRuns, created for the first connection
    cdef AnswerBuffer out
    cdef uint8_t* read_buffer
    cdef Py_ssize_t read_capacity
    cdef bint busy                          # a read is being handled, `out` is in use
    cdef object pins                        # SegmentFile -> PinnedFile while it is being sent
    cdef dict connections
    cdef list starved                       # connections that wait until queued_bytes decreases
    cdef int release(self, int64_t size) except -1
    cdef int64_t share(self) noexcept       # of turn_bytes, for one connection
    cdef int note_taker(self, connection) except -1
    cdef int announce(self) except -1
    cdef bint puts_off(self, connection, const uint8_t* frame, Py_ssize_t size) except? True
    cdef int request_done(self) except -1
    cdef int keep_answer(self, tuple key, bytes answer) except -1
    cdef int count_kept(self, tuple key) except -1
    cpdef int count_errors(self, int api_key, dict found) except -1
