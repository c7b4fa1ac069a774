# Whether bytes of a file are in the page cache, and bringing them in.

from libc.stdint cimport int64_t

# How it is asked, best first; where the system can't say it any way, all counts as there.
cdef enum AskBy:
    BY_CACHESTAT = 0
    BY_NOWAIT = 1
    BY_NOTHING = 2

cdef enum:
    NOT_THERE = 0
    THERE = 1
    CANNOT_SAY = -1                 # not by this way

# on_their_way: this process may just be reading some of them.
cdef int find_pages(
    int fd, int64_t position, int64_t size_bytes, int ask_by, bint on_their_way) noexcept nogil
# Has the system begin to read.
cdef void begin_reading_in(int fd, int64_t position, int64_t size_bytes) noexcept nogil
# Reads without copying; returns the bytes read, fewer at the end of the file or where that fails.
cdef int64_t read_in(int fd, int64_t position, int64_t size_bytes) noexcept nogil
# No reading ahead by the system in the turn of whoever reads.
cdef void expect_no_order(int fd) noexcept nogil
