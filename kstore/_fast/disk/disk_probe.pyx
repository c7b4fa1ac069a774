# Checks whether the disk of a folder responds. When a device hangs, writes into the page cache
# succeed for a while and then block their threads. So a thread overwrites a block of an unnamed
# file, past the page cache, again and again while data is written. Any thread can read how long the
# current check takes. The thread sleeps while nothing is written.
#
# tmpfs has no device, so there are no checks. If a file system refuses O_DIRECT, a check writes
# through the page cache and waits for the write-back of that block.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strdup

import os

from kstore._fast.disk.threads cimport (
    kstore_begin_thread, monotonic_ms, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal,
    pthread_cond_timedwait, pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock, timespec, until_ms)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    #if defined(__linux__) && defined(O_TMPFILE) && defined(O_DIRECT)
    # define KSTORE_PROBES 1
    # include <sys/vfs.h>
    # define KSTORE_BLOCK 4096
    static char kstore_block[KSTORE_BLOCK] __attribute__((aligned(KSTORE_BLOCK)));

    static int kstore_has_device(const char *folder) {
        struct statfs found;
        return statfs(folder, &found)
            || ((unsigned long)found.f_type != 0x01021994UL         /* tmpfs */
                && (unsigned long)found.f_type != 0x858458f6UL);    /* ramfs */
    }
    /* A file without a name, or one whose name is removed at once; -1 with an errno. */
    static int kstore_open_unnamed(const char *folder) {
        char path[4096];
        int fd = open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
        if (fd < 0 && errno == EINVAL)
            fd = open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
        if (snprintf(path, sizeof path, "%s/.probe-XXXXXX", folder) >= (int)sizeof path)
            return errno = ENAMETOOLONG, -1;
        fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
        if (fd < 0 && errno == EINVAL) fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) unlink(path);
        return fd;
    }
    /* Waits until the device has the block. Returns the errno. */
    static int kstore_ask(int fd) {
        int flags = fcntl(fd, F_GETFL);
        ssize_t done = pwrite(fd, kstore_block, KSTORE_BLOCK, 0);
        if (done < 0 && errno == EINVAL && flags & O_DIRECT) {
            fcntl(fd, F_SETFL, flags &= ~O_DIRECT);
            done = pwrite(fd, kstore_block, KSTORE_BLOCK, 0);
        }
        if (done < 0) return errno;
        if (!(flags & O_DIRECT) && sync_file_range(
                fd, 0, KSTORE_BLOCK, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE
                | SYNC_FILE_RANGE_WAIT_AFTER))
            return errno;
        return 0;
    }
    static int kstore_errno(void) { return errno; }
    #else
    # define KSTORE_PROBES 0
    static int kstore_has_device(const char *folder) { return 0; }
    static int kstore_open_unnamed(const char *folder) { return -1; }
    static int kstore_ask(int fd) { return 0; }
    static int kstore_errno(void) { return 0; }
    #endif
    """
    bint KSTORE_PROBES
    bint kstore_has_device(const char* folder)
    int kstore_open_unnamed(const char* folder)
    int kstore_ask(int fd)
    int kstore_errno()
    int close(int fd)
    int getpid()

cdef enum:
    RESTS_AFTER_MS = 1000           # without a write for this time
    TRIES_AGAIN_MS = 10000          # a folder that refuses the file may accept it later


cdef int ask(ProbeState* state, int* fd) noexcept nogil:
    if fd[0] < 0:
        fd[0] = kstore_open_unnamed(state.folder)
        if fd[0] < 0:
            return kstore_errno()
    return kstore_ask(fd[0])


cdef void* run(void* arg) noexcept nogil:
    cdef ProbeState* state = <ProbeState*>arg
    cdef timespec until
    cdef int fd = -1
    cdef int error
    cdef int64_t used_ms = 0
    cdef bint has_device = kstore_has_device(state.folder)
    pthread_mutex_lock(&state.mutex)
    while has_device and not state.ended:
        if state.used:
            state.used = False
            used_ms = monotonic_ms()
        if state.interval_ms == 0 or monotonic_ms() - used_ms > RESTS_AFTER_MS:
            state.resting = True
            state.unsure = False
            pthread_cond_wait(&state.changed, &state.mutex)
            state.resting = False
            continue
        state.asked_ms = monotonic_ms()
        pthread_mutex_unlock(&state.mutex)
        error = ask(state, &fd)
        pthread_mutex_lock(&state.mutex)
        state.asked_ms = 0
        state.unsure = False
        state.answers += 1
        state.error = error
        until = until_ms(state.interval_ms if fd >= 0 else TRIES_AGAIN_MS)
        if not state.ended:
            pthread_cond_timedwait(&state.changed, &state.mutex, &until)
    state.unsure = False                    # there will be no result
    pthread_mutex_unlock(&state.mutex)
    if fd >= 0:
        close(fd)
    leave(state)
    return NULL


# The last of the two to leave frees the state.
cdef void leave(ProbeState* state) noexcept nogil:
    cdef bint last
    pthread_mutex_lock(&state.mutex)
    state.shared_by -= 1
    last = state.shared_by == 0
    pthread_mutex_unlock(&state.mutex)
    if last:
        pthread_cond_destroy(&state.changed)
        pthread_mutex_destroy(&state.mutex)
        free(state.folder)
        free(state)


cdef class DiskProbe:
    def __cinit__(self, str folder not None):
        self.process = getpid()
        self.state = <ProbeState*>calloc(1, sizeof(ProbeState))
        if self.state == NULL:
            raise MemoryError
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.changed, NULL)
        self.state.shared_by = 1
        self.state.folder = strdup(os.fsencode(folder))
        if self.state.folder == NULL:
            raise MemoryError

    def __dealloc__(self):
        # A forked child has no thread, and the thread may have held the mutex.
        if self.state != NULL and self.process == getpid():
            self.close()
            leave(self.state)

    @property
    def interval_ms(self):
        """How often it checks, and how long a check may take; 0: no checks."""
        return self.state.interval_ms

    @interval_ms.setter
    def interval_ms(self, int64_t interval_ms):
        cdef ProbeState* state = self.state
        if self.process != getpid():
            return
        pthread_mutex_lock(&state.mutex)
        state.interval_ms = interval_ms
        if not self.running:
            state.resting = KSTORE_PROBES and interval_ms > 0 and not state.ended
        pthread_cond_signal(&state.changed)
        pthread_mutex_unlock(&state.mutex)

    cdef void wake(self) noexcept nogil:
        cdef ProbeState* state = self.state
        if state.interval_ms == 0 or self.process != getpid():
            return
        pthread_mutex_lock(&state.mutex)
        state.resting = False
        state.unsure = not state.ended
        if self.running:
            pthread_cond_signal(&state.changed)
        elif not state.ended:
            state.shared_by = 2
            self.running = True
            if kstore_begin_thread(run, state):
                state.unsure = False
                state.shared_by = 1             # no thread is left: the next write tries again
                self.running = False
                state.resting = True
        pthread_mutex_unlock(&state.mutex)

    def use(self):
        """Data is being written to the folder: check the disk from now on, for a second."""
        note_use(self)

    @property
    def overdue_ms(self):
        """How long a check has been overdue; 0: it is not."""
        return overdue_ms(self)

    @property
    def answers(self):
        """The number of checks that were answered."""
        return self.state.answers

    @property
    def error(self):
        """The errno of the last check."""
        return self.state.error

    @property
    def resting(self):
        """No checks run until data is written."""
        return bool(self.state.resting)

    def close(self):
        """Stop checking. A check that hangs ends on its own."""
        cdef ProbeState* state = self.state
        if self.process != getpid():
            return
        pthread_mutex_lock(&state.mutex)
        state.ended = True
        state.resting = False
        pthread_cond_signal(&state.changed)
        pthread_mutex_unlock(&state.mutex)
