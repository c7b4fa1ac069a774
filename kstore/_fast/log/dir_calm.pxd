# Whether the disk of one log dir is calm: whether the loop, which must not wait, may write an
# append itself. Each field has one writer; all may read it without a lock.

from libc.stdint cimport int64_t

from kstore._fast.disk.disk_probe cimport DiskProbe
from kstore._fast.disk.write_back cimport WriteBack, WriteBackState

cdef enum:
    LANES = 2
    SLOW_US = 20000                 # a slower write means that the disk is behind
    SLOW_FOR_US = 10000000          # for this long
    HANGING_US = 50000              # an append that takes longer hangs
    SAMPLED_EACH_US = 5000          # how often the loop's wait for a core is read

cdef class DirCalm:
    cdef public bint threaded       # there are threads for appends
    cdef public bint threads_always # threads do all appends
    cdef public bint over_budget    # too much is unwritten
    cdef WriteBack write_back       # the source of over_budget, or None
    cdef WriteBackState* written    # its state
    cdef readonly DiskProbe probe   # checks the disk while the loop writes small appends; or None
    cdef public bint untimed        # the machine's clock means nothing: in a simulation
    cdef int64_t slow_until_us
    # a file with the time that the loop's thread has waited for a core; -1: none
    cdef int core_fd
    cdef bint core_known            # it was opened, or can't be
    cdef int64_t core_waited_us     # its last value
    cdef int64_t core_sampled_us    # and when that was read
    cdef int64_t[2] began_us        # the start of each lane's current append; 0: there is none
    cdef bint is_over_budget(self) noexcept nogil
    # Whether the caller may write a small append itself, now.
    cdef bint is_calm(self) noexcept nogil
    cdef bint hangs(self, int64_t now) noexcept nogil
    cdef void sample_core(self, int64_t now) noexcept nogil
    # A write has taken this long. by_loop: the time that it waited for a core does not count.
    cdef void note_write(self, int64_t took_us, bint by_loop) noexcept nogil
