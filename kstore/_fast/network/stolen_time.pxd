# The time that a hypervisor took from each core: the core had work, but was not running.

from libc.stdint cimport int64_t

cdef class StolenTime:
    cdef int fd
    cdef int cores                          # as many as /proc/stat lists; 0: unknown
    cdef int beats
    cdef bint is_virtual                    # some time was stolen since the system's start
    cdef int64_t tick_us
    cdef int64_t noted_us                   # on the monotonic clock
    cdef int64_t* noted                     # per core, in ticks

    cdef void note(self) noexcept nogil
    cdef int64_t since_noted_us(self, int core, int64_t began_us) noexcept nogil
