"""How calm the disk of one log dir is: whether a small append to one of its logs may be written at
once by the loop, which must not wait, or is left to the dir's threads (append_queue.pyx).

It measures nothing by itself: whoever writes says how long it took.
"""

from kstore._fast.log.clock cimport now_us


cdef class DirCalm:
    """The disk of one log dir, as appends see it."""

    def follow(self, WriteBack write_back):
        """More is unwritten than should be whenever this one says so, too."""
        self.write_back = write_back
        self.written = NULL if write_back is None else write_back.state

    cdef bint is_over_budget(self) noexcept nogil:
        return self.over_budget or (self.written != NULL and self.written.over_budget)

    cdef bint is_calm(self) noexcept nogil:
        cdef int64_t now
        if self.threads_always or self.is_over_budget():
            return False
        if self.slow_until_us == 0 and self.began_us[0] == 0 and self.began_us[1] == 0:
            return True
        now = now_us()
        return now >= self.slow_until_us and not self.hangs(now)

    cdef bint hangs(self, int64_t now) noexcept nogil:
        cdef int lane
        for lane in range(LANES):
            if self.began_us[lane] and now - self.began_us[lane] > HANGING_US:
                return True
        return False

    cdef void note_write(self, int64_t took_us) noexcept nogil:
        if took_us > SLOW_US and not self.untimed:
            self.slow_until_us = now_us() + SLOW_FOR_US

    def note_slow(self):
        """A write took too long just now."""
        self.note_write(SLOW_US + 1)

    @property
    def calm(self):
        """Whether small appends need no thread now."""
        return bool(self.is_calm())
