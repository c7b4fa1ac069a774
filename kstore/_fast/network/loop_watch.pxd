# Measures holds of the loop, and what holds it.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kstore._fast.log.clock cimport now_ms, now_us
from kstore._fast.network.stolen_time cimport StolenTime

cdef enum:
    COUNTED_US = 1000                       # a shorter hold is not counted
    SAMPLE_US = 10000                       # the times of the loop's thread are this old at most
    API_KEYS = 128                          # that have a name here

cdef struct ThreadTimes:
    int64_t on_core_us
    int64_t waited_us                       # for a core

cdef void read_times(int schedstat_fd, ThreadTimes* times) noexcept nogil

cdef class LoopWatch:
    cdef readonly int64_t began_us          # of the current hold; 0: there is none
    cdef int64_t began_ms                   # by the clock of now_ms
    cdef int64_t last_us                    # when the previous request was done
    cdef int64_t longest_us                 # of the requests of this hold
    cdef int longest_key
    cdef int api_key                        # of the current request; -1: none
    cdef PyObject* callback                 # the current one; NULL: a connection is read
    cdef int64_t sampled_us
    cdef ThreadTimes sampled                # of the loop's thread
    cdef readonly int thread_id             # 0: of no thread
    cdef int schedstat_fd
    cdef int64_t gc_began_us, gc_us, gc_of_us
    cdef int64_t beat_us                    # when the guard was last awake; 0: there is none
    cdef int64_t stood_us, stood_of_us
    cdef StolenTime stolen                  # noted by the guard between two holds
    cdef public object on_hold
    cdef public bint writes_json            # the line about a hold
    cdef dict names
    cdef const char* api_names[API_KEYS]
    cdef int sample(self, int64_t now) noexcept
    cdef int finish(self) except -1
    cdef int count(self, int64_t began, int64_t spent) except -1

    # A call begins; False if it is part of a call that has begun already.
    cdef inline bint enter(self, int64_t now) noexcept:
        self.last_us = now
        if self.began_us:
            return False
        self.began_us = now
        self.began_ms = now_ms()
        self.longest_us = 0
        self.longest_key = self.api_key = -1
        self.callback = NULL
        if now - self.sampled_us > SAMPLE_US:
            self.sample(now)
        return True

    # The request of `api_key` is handled.
    cdef inline void request_done(self, int64_t now) noexcept:
        if now - self.last_us > self.longest_us:
            self.longest_us = now - self.last_us
            self.longest_key = self.api_key
        self.last_us = now

    # A read of a connection has ended. If its requests took no time and the scheduler's clock has
    # not ticked, it was short; then the exact clock, which costs as much as the rest, is not read.
    cdef inline int leave(self) except -1:
        if self.last_us - self.began_us < COUNTED_US and now_ms() == self.began_ms:
            self.began_us = 0
            return 0
        return self.finish()
