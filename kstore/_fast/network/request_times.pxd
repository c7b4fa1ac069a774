# The time of each request, by parts.

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

cdef enum:
    QUEUE = 0                               # the parts, and their sum
    LOCAL = 1
    DISK = 2
    REMOTE = 3
    BEHIND = 4
    SEND = 5
    TOTAL = 6
    PARTS = 7
    BUCKETS = 28                            # by powers of two, in microseconds
    PLACES = 128                            # data_plane's table of APIs
    CHOICES = 2                             # the random choices

cdef struct PartTimes:
    int64_t sum_us
    int64_t[28] counts

cdef struct ApiTimes:
    int64_t count
    PartTimes[7] parts

cdef class TimedRequest:
    cdef readonly int api_key, api_version
    cdef readonly int32_t correlation_id
    cdef readonly bytes client_id           # only while requests are reported; or None
    cdef readonly int64_t size_bytes        # without the header
    cdef readonly int64_t ended_us          # on the monotonic clock
    cdef readonly bint lost                 # its connection ended before the answer was sent
    cdef readonly int chosen                # by which choices, as bits
    cdef readonly bint slow                 # it took slow_us or longer
    cdef int copies                         # requests of one write that took the same time
    cdef bint on_disk                       # it waits for a disk, not for others
    cdef int place
    cdef int64_t mark_us                    # the start of the current part
    cdef int64_t[7] us
    cdef int answered(self) noexcept

cdef class RequestTimes:
    cdef ApiTimes* apis[128]
    cdef public object tell                 # tell(connection, TimedRequest); None: no reports
    cdef public int64_t slow_us             # report requests that took this long; 0: none
    cdef uint32_t[2] chances                # of 2 ** 32
    cdef uint32_t random
    cdef int choose(self, TimedRequest timed) except -1
    cdef int finish(self, TimedRequest timed, int64_t now, bint lost) except -1
    cdef bint is_told(self, TimedRequest timed) noexcept
