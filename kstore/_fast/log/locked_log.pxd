# A log with its lock, for threads and processes.

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t

from kstore._fast.log.log_view cimport LogView
from kstore._fast.shared.shared_page cimport SharedPage

cdef class LockedLog(LogView):
    # or open for reading only: append returns KAFKA_STORAGE_ERROR
    cdef readonly bint closed
    cdef bint dirty
    cdef PyThread_type_lock lock
    cdef unsigned long holder
    cdef int depth
    # The state that all processes that write to the log share; None: there is only this one.
    cdef readonly SharedPage page
    cdef readonly int64_t generation        # the last page generation that this process has applied
    cdef bint restructured                  # more than appends and rolls was done under the lock

    cdef int acquire(self) except -1
    cdef int release(self) except -1
    # With the lock: take the lock between processes, too, and apply their changes. Then publish
    # this process's changes, and release it.
    cdef int enter_page(self) except -1
    cdef int lock_page(self) except -1
    cdef int catch_up(self) except -1
    cdef bint agrees(self) noexcept
    cdef int leave_page(self) noexcept
    # Whether the lock is free now.
    cdef bint is_free(self) noexcept
