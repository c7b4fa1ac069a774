# Checks whether bytes of a file are in the page cache, and loads them.

from libc.stdint cimport int64_t

# The ways to check, best first. If none works, all bytes count as cached.
cdef enum AskBy:
    BY_CACHESTAT = 0
    BY_NOWAIT = 1
    BY_NOTHING = 2

cdef enum:
    NOT_THERE = 0
    THERE = 1
    CANNOT_SAY = -1                 # this way does not work here

# on_their_way: this process may be reading some of them now.
cdef int find_pages(
    int fd, int64_t position, int64_t size_bytes, int ask_by, bint on_their_way) noexcept nogil
# Starts to read, without waiting.
cdef void begin_reading_in(int fd, int64_t position, int64_t size_bytes) noexcept nogil
# Reads without copying. Returns the bytes read: fewer at the end of the file or after an error.
cdef int64_t read_in(int fd, int64_t position, int64_t size_bytes) noexcept nogil
# Turns off the system's own read-ahead.
cdef void expect_no_order(int fd) noexcept nogil
