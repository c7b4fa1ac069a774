# Linux's inotify, as far as following a log needs it: watches a directory, and sleeps without the
# GIL until a file in it is written, created, renamed or removed. If there is no inotify, or no
# watch is left, `Watch` raises OSError, and the caller polls.

from libc.errno cimport EINTR, errno

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <stdint.h>
    #include <sys/inotify.h>
    static int kstore_watch_open(void) { return inotify_init1(IN_NONBLOCK | IN_CLOEXEC); }
    static int kstore_watch_add(int fd, const char *path) {
        uint32_t events = IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
        return inotify_add_watch(fd, path, events | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
    }
    #else
    static int kstore_watch_open(void) { errno = ENOSYS; return -1; }
    static int kstore_watch_add(int fd, const char *path) { errno = ENOSYS; return -1; }
    #endif
    static int kstore_watch_poll(int fd, int timeout_ms) {
        struct pollfd p = { fd, POLLIN, 0 };
        return poll(&p, 1, timeout_ms);
    }
    static int kstore_watch_drain(int fd) {
        char waste[4096];
        int seen = 0;
        while (read(fd, waste, sizeof waste) > 0) seen = 1;
        return seen;
    }
    """
    int kstore_watch_open() nogil
    int kstore_watch_add(int fd, const char* path) nogil
    int kstore_watch_poll(int fd, int timeout_ms) nogil
    int kstore_watch_drain(int fd) nogil


cdef class Watch:
    cdef readonly int fd
    cdef readonly str path

    def __cinit__(self, str path not None):
        cdef bytes name = os.fsencode(path)
        cdef int error
        self.path = path
        self.fd = kstore_watch_open()
        if self.fd < 0:
            error = errno
            raise OSError(error, os.strerror(error), path)
        if kstore_watch_add(self.fd, name) < 0:
            error = errno
            raise OSError(error, os.strerror(error), path)

    def __dealloc__(self):
        if self.fd >= 0:
            os.close(self.fd)

    def drain(self):
        if self.fd < 0:
            raise ValueError("the watch is closed")
        return bool(kstore_watch_drain(self.fd))

    def wait(self, int timeout_ms):
        cdef int ready, error
        if self.fd < 0:
            raise ValueError("the watch is closed")
        with nogil:
            ready = kstore_watch_poll(self.fd, timeout_ms)
            error = errno
        if ready < 0 and error != EINTR:
            raise OSError(error, os.strerror(error), self.path)
        return ready > 0 and bool(kstore_watch_drain(self.fd))

    def close(self):
        if self.fd >= 0:
            fd = self.fd
            self.fd = -1
            os.close(fd)
