"""The time that a hypervisor took from each core: "steal" of /proc/stat, see proc(5).

A thread on such a core neither runs nor waits for a core by its own times in /proc/self/schedstat,
so a stop of the machine looks like a wait for a disk.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, strtoll
from libc.string cimport memcpy, strncmp
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.unistd cimport _SC_CLK_TCK, close as c_close, sysconf

from kstore._fast.log.clock cimport now_us

cdef extern from "<fcntl.h>":
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* into, size_t size, int64_t position)

cdef enum:
    MAX_CORES = 256
    TEXT_BYTES = 32768                      # their lines: a line has some 60 bytes
    STEAL_FIELD = 7                         # after user, nice, system, idle, iowait, irq, softirq
    REST_BEATS = 240                        # between two looks at a machine without steal
    OLD_US = 600 * 1000                     # older times explain nothing


cdef class StolenTime:
    """Of the cores of this machine; ``path`` is for tests."""

    def __cinit__(self, path="/proc/stat"):
        cdef bytes name = path.encode()
        self.tick_us = 1000000 // max(sysconf(_SC_CLK_TCK), 1)
        self.fd = c_open(name, O_RDONLY | O_CLOEXEC)
        self.noted = <int64_t*>calloc(MAX_CORES, sizeof(int64_t))
        if self.noted == NULL:
            raise MemoryError
        self.note()

    def __dealloc__(self):
        free(self.noted)
        if self.fd >= 0:
            c_close(self.fd)

    cdef void note(self) noexcept nogil:
        """Remember the times of all cores. On a machine without steal, this rarely reads them."""
        cdef int64_t[MAX_CORES] now         # the loop may read `noted` at the same time
        cdef int core, cores
        self.beats += 1
        if not self.is_virtual and self.beats % REST_BEATS != 1:
            return
        cores = read_steal(self.fd, now)
        memcpy(self.noted, now, cores * sizeof(int64_t))
        self.cores = cores
        self.noted_us = now_us()
        for core in range(cores):
            if now[core]:
                self.is_virtual = True

    cdef int64_t since_noted_us(self, int core, int64_t began_us) noexcept nogil:
        """The time taken from a core since `note`, in whole ticks; 0: less than a tick, unknown, or
        `note` was long before ``began_us`` on the monotonic clock.
        """
        cdef int64_t[MAX_CORES] now
        if not self.is_virtual or not 0 <= core < self.cores or began_us - self.noted_us > OLD_US:
            return 0
        if core >= read_steal(self.fd, now):
            return 0
        return max(0, now[core] - self.noted[core]) * self.tick_us

    # -- for tests

    def remember(self):
        self.note()

    def since_us(self, int core, int64_t after_us=0):
        return self.since_noted_us(core, self.noted_us + after_us)


# The ticks of each core; returns the number of cores. A core that is offline has no line, so it
# stays 0.
cdef int read_steal(int fd, int64_t* ticks) noexcept nogil:
    cdef char[TEXT_BYTES] text
    cdef char* at = text
    cdef char* end
    cdef ssize_t size = -1 if fd < 0 else pread(fd, text, TEXT_BYTES - 1, 0)
    cdef int64_t core, value = 0
    cdef int field, cores = 0
    if size <= 0:
        return 0
    text[size] = 0
    while at[0] and at[0] != b"\n":         # the line of all cores together
        at += 1
    while at[0] == b"\n" and strncmp(at + 1, b"cpu", 3) == 0:
        core = strtoll(at + 4, &at, 10)
        for field in range(STEAL_FIELD + 1):
            value = strtoll(at, &end, 10)
            if end == at:
                return cores                # the text ends within the line
            at = end
        if not 0 <= core < MAX_CORES:
            return cores
        while cores <= core:
            ticks[cores] = 0
            cores += 1
        ticks[core] = value
        while at[0] and at[0] != b"\n":
            at += 1
    return cores
