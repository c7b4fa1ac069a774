# Checks the page cache without waiting. Linux's cachestat() counts the cached pages of a range; a
# page that is being read counts, too. preadv2(RWF_NOWAIT) shows whether the page of one byte has
# been read. If neither works, all bytes count as cached.

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from * nogil:
    """
    #define _FILE_OFFSET_BITS 64
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #ifdef __linux__
    # include <sys/sendfile.h>
    # include <sys/syscall.h>
    # ifndef SYS_cachestat
    #  define SYS_cachestat 451
    # endif
    # ifndef RWF_NOWAIT
    #  define RWF_NOWAIT 8
    # endif
    static int64_t kstore_cached_pages(int fd, int64_t position, int64_t size) {
        struct { uint64_t start, size; } range = { (uint64_t)position, (uint64_t)size };
        struct { uint64_t cached, dirty, writeback, evicted, recently_evicted; } found;
        memset(&found, 0, sizeof found);
        if (syscall(SYS_cachestat, fd, &range, &found, 0) != 0) return -1;
        return (int64_t)found.cached;
    }
    static ssize_t kstore_look(int fd, int64_t position) {
        char byte;
        struct iovec into = { &byte, 1 };
        return preadv2(fd, &into, 1, (off_t)position, RWF_NOWAIT);
    }
    static void kstore_advise(int fd, int64_t position, int64_t size) {
        readahead(fd, (off64_t)position, (size_t)size);
    }
    static ssize_t kstore_discard(int fd, int64_t position, int64_t size) {
        off_t at = (off_t)position;
        static const char *const nowhere = "/dev/null";
        int to = open(nowhere, O_WRONLY | O_CLOEXEC);
        ssize_t n;
        if (to < 0) return -1;
        n = sendfile(to, fd, &at, (size_t)size);
        close(to);
        return n;
    }
    static void kstore_no_order(int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }
    #else
    static int64_t kstore_cached_pages(int fd, int64_t position, int64_t size) { return -1; }
    static ssize_t kstore_look(int fd, int64_t position) { errno = ENOSYS; return -1; }
    static void kstore_advise(int fd, int64_t position, int64_t size) {}
    static ssize_t kstore_discard(int fd, int64_t position, int64_t size) { return -1; }
    static void kstore_no_order(int fd) {}
    #endif
    static int64_t kstore_page_bytes(void) { return (int64_t)sysconf(_SC_PAGESIZE); }
    """
    int64_t kstore_cached_pages(int fd, int64_t position, int64_t size)
    ssize_t kstore_look(int fd, int64_t position)
    void kstore_advise(int fd, int64_t position, int64_t size)
    ssize_t kstore_discard(int fd, int64_t position, int64_t size)
    void kstore_no_order(int fd)
    int64_t kstore_page_bytes()
    ssize_t pread(int fd, void* into, size_t size, int64_t position)

cdef enum:
    LOOK_EACH_BYTES = 131072        # together with the count: a page may still be on its way
    LOOK_ALONE_BYTES = 65536        # without a count
    EVERY_PAGE_BYTES = 65536        # check each page of a range up to this size
    ADVISED_BYTES = 131072          # accepted by every device at once
    COPIED_BYTES = 16384


cdef int find_pages(
    int fd, int64_t position, int64_t size_bytes, int ask_by, bint on_their_way
) noexcept nogil:
    cdef int64_t page = kstore_page_bytes()
    cdef int64_t cached
    if ask_by == BY_CACHESTAT:
        cached = kstore_cached_pages(fd, position, size_bytes)
        if cached < 0:
            return CANNOT_SAY
        if cached < (position + size_bytes - 1) // page - position // page + 1:
            return NOT_THERE
        # If the file system does not support the second check, the count decides.
        return THERE if look_along(
            fd, position, size_bytes,
            <int64_t>LOOK_EACH_BYTES if on_their_way else size_bytes) else NOT_THERE
    if ask_by == BY_NOWAIT:
        if kstore_look(fd, position) < 0 and errno != EAGAIN:
            return CANNOT_SAY
        return THERE if look_along(
            fd, position, size_bytes,
            page if size_bytes <= EVERY_PAGE_BYTES else LOOK_ALONE_BYTES) else NOT_THERE
    return THERE


# Whether a byte at each step, and the last byte, can be read without waiting.
cdef bint look_along(int fd, int64_t position, int64_t size_bytes, int64_t step) noexcept nogil:
    cdef int64_t last = position + size_bytes - 1
    while position < last:
        if kstore_look(fd, position) < 0 and errno == EAGAIN:
            return False
        position += step
    return not (kstore_look(fd, last) < 0 and errno == EAGAIN)


cdef void begin_reading_in(int fd, int64_t position, int64_t size_bytes) noexcept nogil:
    cdef int64_t end = position + size_bytes
    while position < end:
        kstore_advise(fd, position, min(<int64_t>ADVISED_BYTES, end - position))
        position += ADVISED_BYTES


cdef int64_t read_in(int fd, int64_t position, int64_t size_bytes) noexcept nogil:
    cdef uint8_t[16384] waste
    cdef int64_t done = 0
    cdef int64_t n = 0
    while done < size_bytes:
        n = kstore_discard(fd, position + done, size_bytes - done)
        if n <= 0:
            break
        done += n
    while n < 0 and done < size_bytes:
        n = pread(
            fd, waste, <size_t>min(<int64_t>COPIED_BYTES, size_bytes - done), position + done)
        if n <= 0:
            break
        done += n
        n = -1
    return done


cdef void expect_no_order(int fd) noexcept nogil:
    kstore_no_order(fd)


# -- for tests

def is_resident(int fd, int64_t position, int64_t size_bytes, str ask_by="cachestat",
                bint on_their_way=True):
    cdef int way = {"cachestat": BY_CACHESTAT, "nowait": BY_NOWAIT, "nothing": BY_NOTHING}[ask_by]
    cdef int found = find_pages(fd, position, size_bytes, way, on_their_way)
    return None if found == CANNOT_SAY else found == THERE


def bring_in(int fd, int64_t position, int64_t size_bytes):
    cdef int64_t done
    with nogil:
        begin_reading_in(fd, position, size_bytes)
        done = read_in(fd, position, size_bytes)
    return done
