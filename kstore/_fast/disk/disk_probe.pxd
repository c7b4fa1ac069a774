# Checks whether the disk of a folder responds. While data is written there, a thread regularly
# writes a block past the page cache.

from libc.stdint cimport int64_t

from kstore._fast.disk.threads cimport monotonic_ms, pthread_cond_t, pthread_mutex_t

# Shared with the thread. The last of the two to leave frees it.
cdef struct ProbeState:
    pthread_mutex_t mutex
    pthread_cond_t changed
    char* folder
    int64_t interval_ms             # how often it checks; 0: never
    int64_t asked_ms                # the start of the current check; 0: none is running
    int64_t answers
    int error                       # the errno of the last check
    bint used                       # data was written since the last check began
    bint resting                    # a writer must wake the thread
    bint unsure                     # the thread was woken, and the disk has not responded yet
    bint ended
    int shared_by

cdef class DiskProbe:
    cdef ProbeState* state
    cdef bint running
    cdef int process                # the process that created it
    cdef void wake(self) noexcept nogil

# Data is written to the folder: check the disk from now on, for a second.
cdef inline void note_use(DiskProbe probe) noexcept nogil:
    probe.state.used = True
    if probe.state.resting:
        probe.wake()

# Whether the state is unknown: there were no checks for a while, and the new one has no result yet.
cdef inline bint is_unsure(DiskProbe probe) noexcept nogil:
    return probe.state.unsure

# How long the current check has taken, if that is longer than the interval; else 0.
cdef inline int64_t overdue_ms(DiskProbe probe) noexcept nogil:
    cdef int64_t asked = probe.state.asked_ms
    cdef int64_t waited
    if asked == 0:
        return 0
    waited = monotonic_ms() - asked
    return waited if waited > probe.state.interval_ms else 0
