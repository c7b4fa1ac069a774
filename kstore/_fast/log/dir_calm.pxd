# How calm the disk of one log dir is: whether an append may be written by the thread that must not
# wait. A field is written by one party and read by all, without a lock.

from libc.stdint cimport int64_t

from kstore._fast.disk.disk_probe cimport DiskProbe
from kstore._fast.disk.write_back cimport WriteBack, WriteBackState

cdef enum:
    LANES = 2
    SLOW_US = 20000                 # a write that took longer tells of a disk that is behind
    SLOW_FOR_US = 10000000          # and counts for so long
    HANGING_US = 50000              # an append that is under way for longer
    SAMPLED_EACH_US = 5000          # how long the loop's thread has waited for a core

cdef class DirCalm:
    cdef public bint threaded       # there are threads that appends may be left to
    cdef public bint threads_always # all appends are theirs
    cdef public bint over_budget    # more waits to be written back than should
    cdef WriteBack write_back       # who knows it; or None
    cdef WriteBackState* written    # the state of that
    cdef readonly DiskProbe probe   # asks the disk while small appends need no thread; or None
    cdef public bint untimed        # the machine's clock says nothing: in a simulation
    cdef int64_t slow_until_us
    cdef int core_fd                # how long the loop's thread has waited for a core; -1: none
    cdef bint core_known            # it was opened, or can't be
    cdef int64_t core_waited_us     # what it said
    cdef int64_t core_sampled_us    # then
    cdef int64_t[2] began_us        # of the append that each lane's thread is at; 0: none
    cdef bint is_over_budget(self) noexcept nogil
    # Whether a small append may be written at once; who asks is about to.
    cdef bint is_calm(self) noexcept nogil
    cdef bint hangs(self, int64_t now) noexcept nogil
    cdef void sample_core(self, int64_t now) noexcept nogil
    # A write has taken so long; by the loop: the time that it waited for a core does not count.
    cdef void note_write(self, int64_t took_us, bint by_loop) noexcept nogil
