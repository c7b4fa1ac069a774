# A log with its lock, among threads and among processes.

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t

from kstore._fast.log.log_view cimport LogView
from kstore._fast.shared.shared_page cimport SharedPage

cdef class LockedLog(LogView):
    # or open for reading only: append answers KAFKA_STORAGE_ERROR
    cdef readonly bint closed
    cdef bint dirty
    cdef PyThread_type_lock lock
    cdef unsigned long holder
    cdef int depth
    # What other processes say of the log that write to it as well; None: there are none.
    cdef readonly SharedPage page
    cdef readonly int64_t generation        # of the page, up to where this process has followed
    cdef bint restructured                  # more than appends and rolls was done under the lock

    cdef int acquire(self) except -1
    cdef int release(self) except -1
    # With the lock: take the one among the processes too, and take in what they have done; say
    # what was done here, and give it back.
    cdef int enter_page(self) except -1
    cdef int lock_page(self) except -1
    cdef int catch_up(self) except -1
    cdef bint agrees(self) noexcept
    cdef int leave_page(self) noexcept
    # Whether nobody holds the lock just now.
    cdef bint is_free(self) noexcept
