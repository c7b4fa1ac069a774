"""Measures holds of the loop: the time of each callback, and of each read of a connection.

A hold of less than a millisecond costs two reads of the clock and is not counted. Names, counters
and log lines are in kstore/broker/runtime/loop_holds.py.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtoll
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.unistd cimport close as c_close

cdef extern from "<fcntl.h>":
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* into, size_t size, int64_t position)

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/syscall.h>
    #endif
    #include <unistd.h>
    #ifdef __linux__
    #include <sched.h>
    #define KSTORE_THREAD_ID() ((int)syscall(SYS_gettid))
    #define KSTORE_CORE() sched_getcpu()
    #else
    #define KSTORE_THREAD_ID() 0
    #define KSTORE_CORE() (-1)
    #endif
    """
    int KSTORE_THREAD_ID() nogil
    int KSTORE_CORE() nogil

cdef extern from *:
    """
    #if defined(__linux__) && defined(SYS_sched_setattr)
    #include <stdint.h>
    #include <sched.h>
    #include <string.h>
    struct kstore_sched_attr {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    };
    #define KSTORE_RESET_ON_FORK 1
    /* Threads and processes that the calling thread starts get the usual slice: the flag sees to
       that. It also takes a negative nice value from them, so it is not used with one. */
    static int kstore_shorten_slice(uint64_t slice_ns) {
        struct kstore_sched_attr found;
        memset(&found, 0, sizeof found);
        if (syscall(SYS_sched_getattr, 0, &found, sizeof found, 0) < 0) return 0;
        if (found.policy != SCHED_OTHER || found.nice < 0) return 0;
        if (found.runtime_ns == 0) return 0;    /* before Linux 6.12, which tells the slice */
        found.size = sizeof found;
        found.flags = KSTORE_RESET_ON_FORK;
        found.runtime_ns = slice_ns;
        if (syscall(SYS_sched_setattr, 0, &found, 0) < 0) return 0;
        memset(&found, 0, sizeof found);
        syscall(SYS_sched_getattr, 0, &found, sizeof found, 0);
        return found.runtime_ns == slice_ns;
    }
    #else
    #define kstore_shorten_slice(slice_ns) 0
    #endif
    """
    bint kstore_shorten_slice(uint64_t slice_ns) nogil

cdef enum:
    SLICE_NS = 100 * 1000                   # the shortest that Linux accepts
    STOOD_US = 100 * 1000                   # the guard is never later than this without a reason
    GUARD_PERIOD_US = 250 * 1000            # loop_guard.pyx's
    PATH_BYTES = 64
    UNEXPLAINED_US = 3000                   # a shorter stop by the hypervisor is not looked for


def shorten_slice():
    """Ask the scheduler for short time slices of the calling thread: when it wakes up, it gets a
    core at once from threads that have longer ones, instead of at their next timer tick (up to 4
    ms). Its share of the core stays the same. Returns whether the system does it: Linux 6.12 and
    newer, unless the thread has another scheduling policy or a negative nice value.
    """
    return kstore_shorten_slice(SLICE_NS)


cdef class LoopWatch:
    """The clock of one loop. ``names``: of API keys, as bytes, for the line about a hold."""

    def __cinit__(self):
        self.schedstat_fd = -1
        self.api_key = self.longest_key = -1

    def __init__(self, dict names=None, StolenTime stolen=None):
        self.names = {} if names is None else names
        self.stolen = StolenTime() if stolen is None else stolen
        for key, name in self.names.items():
            if 0 <= key < API_KEYS:
                self.api_names[<int>key] = name

    def __dealloc__(self):
        if self.schedstat_fd >= 0:
            c_close(self.schedstat_fd)

    def attach(self):
        """The calling thread runs the loop."""
        cdef char path[PATH_BYTES]
        self.thread_id = KSTORE_THREAD_ID()
        snprintf(path, PATH_BYTES, "/proc/self/task/%d/schedstat", self.thread_id)
        self.schedstat_fd = c_open(path, O_RDONLY | O_CLOEXEC)
        self.sample(now_us())

    def run(self, callback, *args):
        """Call it and measure the time."""
        cdef bint outer = self.enter(now_us())
        if outer:
            self.callback = <PyObject*>callback
        try:
            return callback(*args)
        finally:
            if outer:
                self.finish()

    def running(self):
        """The callback that runs now; None if none runs, or a connection is read."""
        return None if self.began_us == 0 or self.callback == NULL else <object>self.callback

    def on_gc(self, phase, info):
        """For gc.callbacks: a hold by a collection is reported as such."""
        cdef int64_t now = now_us()
        if phase == "start":
            self.gc_began_us = now
            return
        if self.gc_of_us != self.began_us:
            self.gc_us = 0
            self.gc_of_us = self.began_us
        self.gc_us += now - self.gc_began_us

    cdef int sample(self, int64_t now) noexcept:
        if self.schedstat_fd >= 0:
            self.sampled_us = now
            read_times(self.schedstat_fd, &self.sampled)
        return 0

    cdef int finish(self) except -1:
        """The current call has ended."""
        cdef int64_t began = self.began_us
        cdef int64_t spent = now_us() - began
        if spent >= COUNTED_US and self.on_hold is not None:
            self.count(began, spent)
        self.began_us = 0
        return 0

    cdef int count(self, int64_t began, int64_t spent) except -1:
        """Report it, with the thread's times. The time that it waited for a core includes up to
        SAMPLE_US before the hold. The time that a hypervisor took is all that it took from this
        core since the guard was awake, so it can include some before the hold; it is never more
        than what nothing else explains. A wait for a disk that is shorter than that is not seen.
        """
        cdef ThreadTimes times = self.sampled
        cdef int64_t stood = self.stood_us if self.stood_of_us == began else 0
        cdef int64_t late = began + spent - self.beat_us - GUARD_PERIOD_US
        cdef int64_t on_core = -1, waited, rest, taken = 0
        if self.schedstat_fd >= 0:
            read_times(self.schedstat_fd, &times)
        if self.beat_us and late > STOOD_US:    # the guard has not been awake either
            stood += late
        stood = min(spent, stood)
        waited = min(spent, times.waited_us - self.sampled.waited_us)
        if self.schedstat_fd >= 0:
            on_core = min(spent, times.on_core_us - self.sampled.on_core_us)
            rest = spent - on_core - waited - stood
            if rest >= UNEXPLAINED_US:
                taken = min(rest, self.stolen.since_noted_us(KSTORE_CORE(), began))
        callback = None if self.callback == NULL else <object>self.callback
        self.on_hold(
            self.longest_key if callback is None or self.longest_us * 2 >= spent else -1,
            callback, spent, on_core, waited, stood, taken,
            self.gc_us if self.gc_of_us == began else 0)
        self.sampled = times
        self.sampled_us = began + spent
        return 0


cdef void read_times(int schedstat_fd, ThreadTimes* times) noexcept nogil:
    """A thread's times, from /proc/self/task/N/schedstat: on a core and waiting for one, in ns."""
    cdef char text[PATH_BYTES]
    cdef char* rest
    cdef ssize_t size = pread(schedstat_fd, text, PATH_BYTES - 1, 0)
    if size <= 0:
        return
    text[size] = 0
    times.on_core_us = strtoll(text, &rest, 10) // 1000
    times.waited_us = strtoll(rest, NULL, 10) // 1000
