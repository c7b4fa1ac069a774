"""How calm the disk of one log dir is: whether a small append to one of its logs may be written at
once by the loop, which must not wait, or is left to the dir's threads (append_queue.pyx).

It measures nothing by itself: whoever writes says how long it took, and a probe asks the disk while
appends are written by the loop, since a write into the page cache says nothing of the device.
"""

from kstore._fast.disk.disk_probe cimport note_use, overdue_ms
from kstore._fast.log.clock cimport now_us


cdef class DirCalm:
    """The disk of one log dir, as appends see it."""

    def follow(self, WriteBack write_back):
        """More is unwritten than should be whenever this one says so, too."""
        self.write_back = write_back
        self.written = NULL if write_back is None else write_back.state

    def watch_disk(self, DiskProbe probe):
        """It is not calm while this one waits for the disk."""
        self.probe = probe

    cdef bint is_over_budget(self) noexcept nogil:
        return self.over_budget or (self.written != NULL and self.written.over_budget)

    cdef bint is_calm(self) noexcept nogil:
        cdef int64_t now
        if self.threads_always:
            return False
        if self.probe is not None:
            note_use(self.probe)
            if overdue_ms(self.probe):
                return False
        if self.is_over_budget():
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
