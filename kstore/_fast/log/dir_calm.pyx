"""Whether the disk of one log dir is calm: whether the loop, which must not wait, may write a small
append at once, or must leave it to the dir's threads (append_queue.pyx).

It measures nothing itself: writers report the time of their writes, and a probe checks the disk
while the loop writes appends, because a write into the page cache does not show the state of the
device. Time that a write waited for a core does not count: on a busy machine the thread may stop in
the middle of a write.
"""

from posix.unistd cimport close

from kstore._fast.disk.disk_probe cimport is_unsure, note_use, overdue_ms
from kstore._fast.log.clock cimport now_us

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <unistd.h>
    /* For the thread that opens it, regardless of who reads it. */
    static int kstore_open_schedstat(void) {
        return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    }
    /* How long it has waited for a core since its start, in microseconds; -1: unknown. */
    static int64_t kstore_core_waited_us(int fd) {
        char text[96], *rest;
        ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
        if (size <= 0) return -1;
        text[size] = 0;
        strtoll(text, &rest, 10);
        return strtoll(rest, NULL, 10) / 1000;
    }
    """
    int kstore_open_schedstat()
    int64_t kstore_core_waited_us(int fd)


cdef class DirCalm:
    """The state of one log dir's disk, for appends."""

    def __cinit__(self):
        self.core_fd = -1

    def __dealloc__(self):
        if self.core_fd >= 0:
            close(self.core_fd)

    def follow(self, WriteBack write_back):
        """Also over the budget whenever this one is."""
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
            if is_unsure(self.probe) or overdue_ms(self.probe):
                return False
        if self.is_over_budget():
            return False
        if not self.untimed:
            now = now_us()
            if now - self.core_sampled_us > SAMPLED_EACH_US:
                self.sample_core(now)
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

    cdef void note_write(self, int64_t took_us, bint by_loop) noexcept nogil:
        cdef int64_t now, waited_us
        if took_us <= SLOW_US or self.untimed:
            return
        now = now_us()
        if by_loop and self.core_fd >= 0:
            waited_us = kstore_core_waited_us(self.core_fd) - self.core_waited_us
            # It may have waited before the write, too. So all time since the sample in which it did
            # not wait for a core counts, including the write's own.
            if now - self.core_sampled_us - waited_us <= SLOW_US:
                return
        self.slow_until_us = now + SLOW_FOR_US

    cdef void sample_core(self, int64_t now) noexcept nogil:
        """Note the time that the calling thread, the loop's, has waited for a core."""
        if not self.core_known:
            self.core_known = True
            self.core_fd = kstore_open_schedstat()
        self.core_waited_us = kstore_core_waited_us(self.core_fd)
        self.core_sampled_us = now

    def note_slow(self):
        """A write has just taken too long."""
        self.note_write(SLOW_US + 1, False)

    def note_loop_write(self, int64_t took_us):
        """The time of a write by the loop's thread, which calls this."""
        self.note_write(took_us, True)

    @property
    def calm(self):
        """Whether small appends need no thread now."""
        return bool(self.is_calm())
