# Whether the disk of a folder still answers: a thread writes a block there now and then, past the
# page cache, while somebody else writes into the cache.

from libc.stdint cimport int64_t

from kstore._fast.disk.threads cimport monotonic_ms, pthread_cond_t, pthread_mutex_t

# Shared with the thread; the last of the two frees it.
cdef struct ProbeState:
    pthread_mutex_t mutex
    pthread_cond_t changed
    char* folder
    int64_t interval_ms             # 0: nothing is asked
    int64_t asked_ms                # when the question under way was asked; 0: none is
    int64_t answers
    int error                       # the errno of the last one
    bint used                       # somebody has written since the last question
    bint resting                    # who writes has to wake the thread
    bint unsure                     # it was woken, and the disk has not answered since
    bint ended
    int shared_by

cdef class DiskProbe:
    cdef ProbeState* state
    cdef bint running
    cdef int process                # who made it
    cdef void wake(self) noexcept nogil

# Somebody writes there now: the disk is asked from now on, for a second.
cdef inline void note_use(DiskProbe probe) noexcept nogil:
    probe.state.used = True
    if probe.state.resting:
        probe.wake()

# Whether nobody knows: it was asked nothing for a while, and not answered since it is asked again.
cdef inline bint is_unsure(DiskProbe probe) noexcept nogil:
    return probe.state.unsure

# For how long the disk has owed an answer, if that is longer than a question's interval; else 0.
cdef inline int64_t overdue_ms(DiskProbe probe) noexcept nogil:
    cdef int64_t asked = probe.state.asked_ms
    cdef int64_t waited
    if asked == 0:
        return 0
    waited = monotonic_ms() - asked
    return waited if waited > probe.state.interval_ms else 0
