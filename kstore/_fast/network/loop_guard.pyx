"""The thread that checks four times a second whether the loop is held, and reports a hold while it
lasts.

It writes the line without Python's lock, because the loop's thread may hold the lock while it waits
for a disk. It decides nothing and stops nothing.
"""

from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtol
from libc.string cimport strcmp
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.time cimport clock_gettime, timespec
from posix.unistd cimport close as c_close, readlink, write

from kstore._fast.log.clock cimport now_us
from kstore._fast.network.loop_watch cimport API_KEYS, LoopWatch, ThreadTimes, read_times

cdef extern from "<fcntl.h>":
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* into, size_t size)

cdef extern from "<time.h>" nogil:
    int CLOCK_REALTIME
    struct tm:
        pass
    tm* localtime_r(const long* seconds, tm* parts)
    tm* gmtime_r(const long* seconds, tm* parts)
    size_t strftime(char* text, size_t size, const char* form, const tm* parts)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd* fds, unsigned long count, int timeout_ms)

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/syscall.h>
    #endif
    struct kstore_call { long number; const char *name; int of_file; };
    /* The calls that can wait for a disk or for another thread. */
    static const struct kstore_call kstore_calls[] = {
    #ifdef SYS_pwrite64
        {SYS_pwrite64, "pwrite", 1}, {SYS_pread64, "pread", 1},
    #endif
    #ifdef SYS_preadv2
        {SYS_preadv2, "preadv2", 1}, {SYS_pwritev2, "pwritev2", 1},
    #endif
    #ifdef SYS_pwritev
        {SYS_pwritev, "pwritev", 1}, {SYS_preadv, "preadv", 1},
    #endif
    #ifdef SYS_sync_file_range
        {SYS_sync_file_range, "sync_file_range", 1},
    #endif
    #ifdef SYS_fallocate
        {SYS_fallocate, "fallocate", 1},
    #endif
    #ifdef SYS_sendfile
        {SYS_sendfile, "sendfile", 0},
    #endif
    #ifdef SYS_open
        {SYS_open, "open", 0}, {SYS_unlink, "unlink", 0}, {SYS_rename, "rename", 0},
        {SYS_mkdir, "mkdir", 0}, {SYS_rmdir, "rmdir", 0}, {SYS_stat, "stat", 0},
    #endif
    #ifdef SYS_openat
        {SYS_openat, "openat", 0}, {SYS_unlinkat, "unlinkat", 0}, {SYS_mkdirat, "mkdirat", 0},
    #endif
    #ifdef SYS_getdents64
        {SYS_getdents64, "getdents64", 1},
    #endif
    #ifdef SYS_renameat
        {SYS_renameat, "renameat", 0},
    #endif
    #ifdef SYS_futex
        {SYS_futex, "futex", 0},
    #endif
    #ifdef SYS_read
        {SYS_read, "read", 1}, {SYS_write, "write", 1}, {SYS_fsync, "fsync", 1},
        {SYS_ftruncate, "ftruncate", 1}, {SYS_flock, "flock", 1}, {SYS_fcntl, "fcntl", 1},
    #endif
    #ifdef SYS_fdatasync
        {SYS_fdatasync, "fdatasync", 1},
    #endif
        {-1, "", 0},            /* other systems do not report it */
    };
    #define KSTORE_CALLS ((int)(sizeof(kstore_calls) / sizeof(kstore_calls[0])))
    """
    struct kstore_call:
        long number
        const char* name
        int of_file
    const kstore_call* kstore_calls
    int KSTORE_CALLS

cdef enum:
    PERIOD_MS = 250
    STOOD_US = 100 * 1000                   # a later wake-up: the whole process was stopped
    SHORT_US = 1000
    TEXT_BYTES = 512
    LINE_BYTES = 2048


def guard(LoopWatch watch not None, int stop_fd, int64_t stuck_ms, on_stuck):
    """Until ``stop_fd`` is readable, check whether the loop is held for longer than ``stuck_ms``.
    This is written to stderr at once; then ``on_stuck(began_us)`` is called when this thread gets
    Python's lock.
    """
    cdef int own_fd = c_open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)
    cdef int64_t told_us = 0
    cdef bint stuck
    try:
        while True:
            with nogil:
                stuck = look(watch, stop_fd, own_fd, stuck_ms * 1000, &told_us)
            if not stuck:
                return
            on_stuck(told_us)
    finally:
        watch.beat_us = 0
        if own_fd >= 0:
            c_close(own_fd)


cdef bint look(
    LoopWatch watch, int stop_fd, int own_fd, int64_t stuck_us, int64_t* told_us
) noexcept nogil:
    """Returns True when the loop is stuck, once for each hold; False at the end."""
    cdef pollfd stop
    cdef ThreadTimes before, after
    cdef int64_t slept, began, held, now = now_us()
    before.waited_us = after.waited_us = 0
    stop.fd = stop_fd
    stop.events = POLLIN
    read_times(own_fd, &before)
    while True:
        watch.beat_us = now
        stop.revents = 0
        if poll(&stop, 1, PERIOD_MS) > 0:
            return False
        slept, now = now, now_us()
        began = watch.began_us
        read_times(own_fd, &after)
        note_standstill(watch, began, now - slept - (after.waited_us - before.waited_us))
        before = after
        if began == 0 or now - began < SHORT_US:
            watch.stolen.note()             # not during a hold that it may explain
        held = now - began - (watch.stood_us if watch.stood_of_us == began else 0)
        if began and began != told_us[0] and held >= stuck_us:
            told_us[0] = began
            write_line(watch, held)
            return True


cdef void note_standstill(LoopWatch watch, int64_t began, int64_t slept_us) noexcept nogil:
    """A thread that slept too long, and did not wait for a core, was stopped."""
    cdef int64_t late = slept_us - PERIOD_MS * 1000
    if began == 0 or late < STOOD_US:
        return
    if watch.stood_of_us != began:
        watch.stood_us = 0
        watch.stood_of_us = began
    watch.stood_us += late


cdef void write_line(LoopWatch watch, int64_t held_us) noexcept nogil:
    """In the format of the broker's other lines."""
    cdef char line[LINE_BYTES]
    cdef char where[TEXT_BYTES]
    cdef char at[32]
    cdef timespec now
    cdef tm parts
    cdef const char* name = "a callback"
    cdef int size, key = watch.api_key
    cdef const char* form = (
        "%s,%03d WARNING the loop has been held for %lld ms so far by %s; its thread is %s\n")
    if 0 <= key < API_KEYS and watch.api_names[key] != NULL:
        name = watch.api_names[key]
    clock_gettime(CLOCK_REALTIME, &now)
    describe_thread(watch.thread_id, where)
    make_plain(where)
    if watch.writes_json:
        gmtime_r(&now.tv_sec, &parts)
        strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &parts)
        form = (
            '{"time": "%s.%03dZ", "level": "WARN", "logger": "kstore.broker", '
            '"message": "the loop has been held for %lld ms so far by %s; its thread is %s"}\n')
    else:
        localtime_r(&now.tv_sec, &parts)
        strftime(at, sizeof(at), "%Y-%m-%d %H:%M:%S", &parts)
    size = snprintf(
        line, LINE_BYTES, form, at, <int>(now.tv_nsec // 1000000), <long long>(held_us // 1000),
        name, where)
    if size > 0:
        write(2, line, min(size, LINE_BYTES - 1))


cdef void make_plain(char* text) noexcept nogil:
    """Escape a file's name, so that it cannot end the line or a JSON text."""
    cdef int at = 0
    while text[at]:
        if <unsigned char>text[at] < 32 or <unsigned char>text[at] > 126 \
                or text[at] == b'"' or text[at] == b'\\':
            text[at] = b'?'
        at += 1


cdef void describe_thread(int thread_id, char* text) noexcept nogil:
    """The system call that a thread is in, and its file, as the kernel reports them."""
    cdef char told[TEXT_BYTES]
    cdef char path[64]
    cdef char* rest
    cdef long number
    cdef int each, size
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread_id)
    size = read_file(path, told)
    if size <= 0:
        snprintf(text, TEXT_BYTES, "where this kernel does not tell")
        return
    if strcmp(told, "running\n") == 0:
        snprintf(text, TEXT_BYTES, "running, or waits for a core")
        return
    number = strtol(told, &rest, 10)
    snprintf(text, TEXT_BYTES, "in the system call %ld", number)
    for each in range(KSTORE_CALLS):
        if kstore_calls[each].number == number:
            snprintf(text, TEXT_BYTES, "in %s", kstore_calls[each].name)
            if kstore_calls[each].of_file:
                name_file(strtol(rest, NULL, 16), kstore_calls[each].name, text)
            return


cdef void name_file(long fd, const char* call, char* text) noexcept nogil:
    cdef char path[64]
    cdef char target[TEXT_BYTES - 64]
    cdef ssize_t size
    snprintf(path, sizeof(path), "/proc/self/fd/%ld", fd)
    size = readlink(path, target, sizeof(target) - 1)
    if size > 0:
        target[size] = 0
        snprintf(text, TEXT_BYTES, "in %s of %s", call, target)


cdef int read_file(const char* path, char* text) noexcept nogil:
    """Its first bytes, with an end; -1: it can't be read."""
    cdef int fd = c_open(path, O_RDONLY | O_CLOEXEC)
    cdef ssize_t size
    if fd < 0:
        return -1
    size = read(fd, text, TEXT_BYTES - 1)
    c_close(fd)
    if size >= 0:
        text[size] = 0
    return <int>size
