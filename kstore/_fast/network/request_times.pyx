"""The time of each request, by parts: counted by API for the metrics, and reported to the request
log and traces for requests that were chosen at random or were slow.

The connection reports the end of each part. This module writes no log and keeps no finished
request.
"""

cimport cython
from libc.stdlib cimport calloc, free

from kstore._fast.log.clock cimport now_us

PARTS_BY_NAME = ("queue", "local", "disk", "remote", "behind", "send", "total")

cdef enum:
    FETCH = 1
    JOIN_GROUP = 11
    SYNC_GROUP = 14
    FIRST_OWN_PLACE = 125       # as api_place says
    LAST_OWN_PLACE = 127
    OWN_API = 25300


cdef inline bint waits_by_design(int api_key) noexcept nogil:
    """Whether requests of this API wait for others, which does not make them slow."""
    return api_key == FETCH or api_key == JOIN_GROUP or api_key == SYNC_GROUP


cdef inline int api_key_at(int place) noexcept nogil:
    return OWN_API + LAST_OWN_PLACE - place if place >= FIRST_OWN_PLACE else place


cdef inline int bucket_of(int64_t us) noexcept nogil:
    cdef int bucket = 0
    while us > 0 and bucket < BUCKETS - 1:
        us >>= 1
        bucket += 1
    return bucket


@cython.freelist(64)
@cython.no_gc
cdef class TimedRequest:
    """One request, and its parts in microseconds."""

    cdef int answered(self) noexcept:
        """Its answer is complete."""
        cdef int64_t now = now_us()
        self.us[DISK if self.on_disk else REMOTE] += now - self.mark_us
        self.mark_us = now
        return 0

    def part_us(self, str name):
        """The time in a part; "total": all parts."""
        return self.us[PARTS_BY_NAME.index(name)]

    def parts(self):
        """All parts by name, and "total"."""
        return {name: self.us[place] for place, name in enumerate(PARTS_BY_NAME)}


cdef class RequestTimes:
    """The times of all requests of a broker."""

    def __cinit__(self):
        self.random = 2463534242

    def __dealloc__(self):
        cdef int place
        for place in range(PLACES):
            free(self.apis[place])

    def set_chance(self, int choice, double rate):
        """Set the share (0 to 1) of requests that get the bit of choice 0 or 1."""
        if not 0 <= choice < CHOICES or not 0 <= rate <= 1:
            raise ValueError(f"choice {choice} at a rate of {rate}: 0 or 1, at 0 to 1")
        self.chances[choice] = <uint32_t>min(rate * 4294967296.0, 4294967295.0)

    def by_api(self):
        """API key -> part -> (sum in microseconds, number, numbers by bucket). Bucket n has those
        of less than 2 ** n microseconds that are in no earlier bucket; the last has all longer
        ones.
        """
        cdef ApiTimes* api
        cdef int place, part
        found = {}
        for place in range(PLACES):
            api = self.apis[place]
            if api != NULL:
                found[api_key_at(place)] = {
                    name: (api.parts[part].sum_us, api.count,
                           [api.parts[part].counts[each] for each in range(BUCKETS)])
                    for part, name in enumerate(PARTS_BY_NAME)
                }
        return found

    cdef int choose(self, TimedRequest timed) except -1:
        """Choose at random whether the request is reported."""
        cdef int choice
        for choice in range(CHOICES):
            if self.chances[choice]:
                self.random ^= self.random << 13
                self.random ^= self.random >> 17
                self.random ^= self.random << 5
                if self.random <= self.chances[choice]:
                    timed.chosen |= 1 << choice
        return 0

    cdef int finish(self, TimedRequest timed, int64_t now, bint lost) except -1:
        """The request has ended: count it."""
        cdef ApiTimes* api = self.apis[timed.place]
        cdef int part
        if api == NULL:
            api = self.apis[timed.place] = <ApiTimes*>calloc(1, sizeof(ApiTimes))
            if api == NULL:
                raise MemoryError("no memory for the times of requests")
        timed.ended_us = now
        timed.lost = lost
        timed.us[TOTAL] = 0
        for part in range(TOTAL):
            timed.us[TOTAL] += timed.us[part]
        api.count += timed.copies
        for part in range(PARTS):
            api.parts[part].sum_us += timed.us[part] * timed.copies
            api.parts[part].counts[bucket_of(timed.us[part])] += timed.copies
        return 0

    cdef bint is_told(self, TimedRequest timed) noexcept:
        """Whether a finished request must be reported."""
        cdef int64_t own_us = timed.us[TOTAL]
        if waits_by_design(timed.api_key):
            own_us -= timed.us[REMOTE]
        timed.slow = 0 < self.slow_us <= own_us
        return timed.slow or timed.chosen
