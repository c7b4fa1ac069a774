# A log with its lock: one for the threads of this process and, if other processes also write to the
# log, the one on their shared page. Taking the lock applies the changes of the others, in C if they
# only appended; releasing it publishes the new log end. It appends nothing.

from cpython.pythread cimport (
    NOWAIT_LOCK, WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock)
from libc.errno cimport EBUSY, ETIMEDOUT
from libc.stdint cimport int64_t

import os

from kstore._fast.log.log_segment cimport LogSegment
from kstore._fast.shared.shared_page cimport PageState, SharedPage

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef enum:
    PAGE_SLICE_MS = 200                     # a wait of this time handles no signals
    PAGE_TOLD_AFTER = 25                    # slices: another process keeps the lock


cdef class LockedLog(LogView):
    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    # -- the lock: recursive, so that the owner may use it in its roll

    cdef int acquire(self) except -1:
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.depth and self.holder == me:
            self.depth += 1
            return 0
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self.lock, WAIT_LOCK)
        self.holder = me
        self.depth = 1
        if self.page is not None:
            self.enter_page()
        return 0

    cdef int release(self) except -1:
        if self.depth == 1 and self.page is not None:
            self.leave_page()
        self.depth -= 1
        if self.depth == 0:
            PyThread_release_lock(self.lock)
        return 0

    # -- the lock between processes

    cdef int enter_page(self) except -1:
        cdef bint locked = False
        try:
            self.lock_page()
            locked = True
            if not self.agrees():
                self.catch_up()
        except BaseException:
            if locked:
                self.page.unlock()              # without publishing: nothing is known to be right
            self.depth = 0
            PyThread_release_lock(self.lock)
            raise
        return 0

    cdef int lock_page(self) except -1:
        cdef SharedPage page = self.page
        cdef int slices = 0
        cdef int error = page.try_lock()
        if error == EBUSY:
            error = ETIMEDOUT
        while error == ETIMEDOUT:
            with nogil:
                error = page.lock_for(PAGE_SLICE_MS)
            if error == ETIMEDOUT:
                PyErr_CheckSignals()
                slices += 1
                if slices == PAGE_TOLD_AFTER:
                    self.owner.tell_waiting(page.holder)
        if error:
            raise OSError(error, os.strerror(error), page.path)
        return 0

    # Whether the page has only what this process already knows.
    cdef bint agrees(self) noexcept:
        cdef PageState* state = self.page.state
        return (
            self.active is not None and state.position == self.active.size_bytes
            and state.active_base == self.active.base_offset
            and state.generation == self.generation and not state.needs_recovery
            and state.log_start == self.log_start_offset
            and state.durable == self.durable_offset and not state.deleted)

    cdef int catch_up(self) except -1:
        cdef PageState* state = self.page.state
        cdef LogSegment active = self.active
        cdef int64_t position = state.position
        if active is not None and state.active_base == active.base_offset \
                and state.generation == self.generation and position >= active.size_bytes \
                and not state.needs_recovery and not state.deleted \
                and state.log_start == self.log_start_offset:
            self.durable_offset = max(self.durable_offset, state.durable)
            if position == active.size_bytes:
                self.note_end()
                return 0
            found, _status = self.scan(active, active.size_bytes, position)
            if found == position:
                active.file().follow(position)
                self.log_end_offset = active.next_offset
                self.note_end()
                if self.page.keeper and not self.dirty:
                    self.dirty = True
                    self.owner.note_dirty()
                return 0
        self.owner.catch_up()
        self.generation = state.generation
        self.restructured = False
        return 0

    cdef int leave_page(self) noexcept:
        cdef PageState* state = self.page.state
        cdef LogSegment active = self.active
        cdef bint changed
        if active is None:                      # it was never loaded
            self.page.unlock()
            return 0
        if self.restructured:
            self.restructured = False
            state.generation += 1
            self.generation = state.generation
            state.durable = self.durable_offset
        if state.durable > self.log_end_offset:
            state.durable = self.durable_offset     # its writer was killed before it published that
        changed = state.position != active.size_bytes or state.active_base != active.base_offset \
            or state.log_end != self.log_end_offset or state.log_start != self.log_start_offset \
            or state.durable < self.durable_offset
        state.log_start = self.log_start_offset
        state.active_base = active.base_offset
        state.position = active.size_bytes
        state.log_end = self.log_end_offset
        state.durable = max(state.durable, self.durable_offset)
        if active.handle is not None and active.handle.broken:
            state.needs_recovery = 1            # a failed write could not be truncated
        self.page.unlock()
        if changed:
            self.page.wake_waiters()
        return 0

    def share(self, SharedPage page):
        """Other processes append too, and publish it on this page; None: no longer."""
        self.page = page
        self.generation = -1

    def forget_all(self):
        """Load the log again when its lock is next taken."""
        self.generation = -1

    def look(self):
        """Apply what other processes have appended."""
        if self.page is not None and not self.closed and not self.agrees():
            self.acquire()
            self.release()

    def set_segments(self, list segments not None):
        LogView.set_segments(self, segments)
        self.restructured = True

    def forget_end(self, list segments not None, LogSegment shorter not None):
        """The last of these segments will be cut to the size of this copy, and the segments after
        it removed: from now on readers see only what stays, and all of it."""
        LogView.set_segments(self, segments)
        self.active.take(shorter)

    def shift_segments(self, list segments not None):
        """The same after a roll, or for want of the first ones: others see that by themselves."""
        LogView.set_segments(self, segments)

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *error):
        self.release()

    def after_fork(self):
        """In a child process: no one else holds the lock, and nothing may be appended."""
        self.lock = PyThread_allocate_lock()
        self.depth = 0
        self.page = None
        self.closed = True

    def close(self):
        self.closed = True

    cdef bint is_free(self) noexcept:
        """Whether the lock is free now."""
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            return False
        PyThread_release_lock(self.lock)
        return True
