# Group commit: one of the threads that wait for the disk syncs for all.

from libc.stdint cimport int64_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t

cdef class SyncGroup:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t changed     # a round has ended
    cdef pthread_cond_t joined      # a thread joined while a leader gathers
    cdef int64_t durable            # after the last round
    cdef int64_t round
    cdef bint syncing
    cdef bint gathering
    cdef int waiting                # threads that joined since the last round ended
    cdef int expected               # the number of the last round
    cdef int64_t began_ns
    cdef int64_t took_ns            # the time of the last sync
    cdef bint join(self, int64_t target) noexcept nogil
    cdef void gather(self) noexcept nogil
