# A thread without the GIL reads cold parts of files into the page cache while the loop serves other
# clients. It reads ahead of readers that read in order. It notifies the loop through an eventfd. It
# keeps no data: readers read from the page cache afterwards.

from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kstore._fast.disk.page_cache cimport (
    BY_NOTHING, CANNOT_SAY, THERE, begin_reading_in, expect_no_order,
    find_pages, read_in)
from kstore._fast.disk.threads cimport (
    kstore_begin_thread, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal,
    pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <unistd.h>
    #ifdef __linux__
    # include <sys/eventfd.h>
    static int kstore_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
    static void kstore_raise_event(int fd) {
        uint64_t one = 1;
        ssize_t n = write(fd, &one, sizeof one);
        (void)n;                /* full: the event is set */
    }
    static void kstore_take_event(int fd) {
        uint64_t count;
        ssize_t n = read(fd, &count, sizeof count);
        (void)n;
    }
    #elif defined(__APPLE__)
    # include <sys/event.h>
    static int kstore_event(void) {
        struct kevent user;
        int fd = kqueue();
        if (fd < 0) return -1;
        EV_SET(&user, 1, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, NULL);
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) || kevent(fd, &user, 1, NULL, 0, NULL)) {
            close(fd);
            return -1;
        }
        return fd;
    }
    static void kstore_raise_event(int fd) {
        struct kevent user;
        EV_SET(&user, 1, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL);
        kevent(fd, &user, 1, NULL, 0, NULL);
    }
    static void kstore_take_event(int fd) {
        struct timespec now = { 0, 0 };
        struct kevent user;
        kevent(fd, NULL, 0, &user, 1, &now);
    }
    #else
    static int kstore_event(void) { errno = ENOSYS; return -1; }
    static void kstore_raise_event(int fd) { (void)fd; }
    static void kstore_take_event(int fd) { (void)fd; }
    #endif
    static int kstore_duplicate_fd(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }
    """
    int kstore_event()
    void kstore_raise_event(int fd)
    void kstore_take_event(int fd)
    int kstore_duplicate_fd(int fd)
    int close(int fd)
    int getpid()

cdef enum:
    MAX_DOUBTS = 3

cdef int64_t PIECE_BYTES = 512 * 1024
cdef int64_t LARGEST_WINDOW = 8 * 1024 * 1024
cdef int64_t SMALLEST_WINDOW = 256 * 1024


# Does one job. Jobs that readers wait for come before those ahead of them. False: a job ahead was
# interrupted and must continue later.
cdef bint do_job(PageReaderState* state, PageJob* job, bint gives_way) noexcept nogil:
    cdef int64_t size
    if not job.begun:
        begin_reading_in(job.fd, job.position, min(job.size_bytes, PIECE_BYTES))
    while job.size_bytes > 0:
        if gives_way and (state.wanted_count or state.ended):
            return False
        size = min(job.size_bytes, PIECE_BYTES)
        if job.size_bytes > size:
            begin_reading_in(
                job.fd, job.position + size, min(job.size_bytes - size, PIECE_BYTES))
        if read_in(job.fd, job.position, size) != size:
            break                           # the file's end, or an error: the reader gets it
        check(state, job.fd, job.position + size - 1)
        job.position += size
        job.size_bytes -= size
    return True


# The bytes just read must be cached. If the check repeatedly says otherwise, use another way to
# check.
cdef void check(PageReaderState* state, int fd, int64_t position) noexcept nogil:
    if find_pages(fd, position, 1, state.ask_by, False) == THERE:
        state.doubts = 0
        return
    state.doubts += 1
    if state.doubts >= MAX_DOUBTS and state.ask_by < BY_NOTHING:
        state.ask_by += 1
        state.doubts = 0


cdef void begin_wanted(PageReaderState* state) noexcept nogil:
    cdef PageJob* job
    cdef int at
    for at in range(state.wanted_count):
        job = &state.wanted[(state.first_wanted + at) % MAX_WANTED]
        if not job.begun:
            job.begun = True
            pthread_mutex_unlock(&state.mutex)
            begin_reading_in(job.fd, job.position, job.size_bytes)
            pthread_mutex_lock(&state.mutex)


cdef void* run(void* arg) noexcept nogil:
    cdef PageReaderState* state = <PageReaderState*>arg
    cdef PageJob job
    cdef bint done
    pthread_mutex_lock(&state.mutex)
    while not state.ended:
        if state.wanted_count:
            begin_wanted(state)             # all of them: the disk chooses the order
            job = state.wanted[state.first_wanted]
            pthread_mutex_unlock(&state.mutex)
            do_job(state, &job, False)
            close(job.fd)
            pthread_mutex_lock(&state.mutex)
            state.first_wanted = (state.first_wanted + 1) % MAX_WANTED
            state.wanted_count -= 1
            state.done[state.done_count] = job.number
            state.done_count += 1
            # Without the mutex, because the loop takes it as soon as the event wakes it. If this
            # thread were interrupted with the mutex, the loop would wait until it runs again.
            pthread_mutex_unlock(&state.mutex)
            kstore_raise_event(state.event)
            pthread_mutex_lock(&state.mutex)
        elif state.ahead_count:
            job = state.ahead[state.first_ahead]
            state.first_ahead = (state.first_ahead + 1) % MAX_AHEAD
            state.ahead_count -= 1
            state.ahead_bytes += job.size_bytes
            pthread_mutex_unlock(&state.mutex)
            done = do_job(state, &job, True)
            pthread_mutex_lock(&state.mutex)
            if not done and state.ahead_count < MAX_AHEAD:
                state.ahead_bytes -= job.size_bytes
                state.first_ahead = (state.first_ahead + MAX_AHEAD - 1) % MAX_AHEAD
                state.ahead[state.first_ahead] = job
                state.ahead_count += 1
            else:
                pthread_mutex_unlock(&state.mutex)
                close(job.fd)
                pthread_mutex_lock(&state.mutex)
        else:
            state.busy = False
            pthread_cond_wait(&state.work, &state.mutex)
            state.busy = True
    pthread_mutex_unlock(&state.mutex)
    leave(state)
    return NULL


cdef void stop(PageReaderState* state) noexcept nogil:
    pthread_mutex_lock(&state.mutex)
    state.ended = True
    pthread_cond_signal(&state.work)
    pthread_mutex_unlock(&state.mutex)


# The last of the two to leave frees the state.
cdef void leave(PageReaderState* state) noexcept nogil:
    cdef bint last
    cdef int at
    pthread_mutex_lock(&state.mutex)
    state.shared_by -= 1
    last = state.shared_by == 0
    pthread_mutex_unlock(&state.mutex)
    if not last:
        return
    for at in range(state.wanted_count):
        close(state.wanted[(state.first_wanted + at) % MAX_WANTED].fd)
    for at in range(state.ahead_count):
        close(state.ahead[(state.first_ahead + at) % MAX_AHEAD].fd)
    if state.event >= 0:
        close(state.event)
    pthread_cond_destroy(&state.work)
    pthread_mutex_destroy(&state.mutex)
    free(state)


class NotInMemory(Exception):
    def __init__(self, log, segment, str lacks, int64_t place):
        super().__init__(f"{segment.path}: {lacks} {place}")
        self.log = log
        self.segment = segment
        self.lacks = lacks
        self.place = place


cdef class ColdRead:
    cdef int join(self, object tell) except -1:
        if tell is None:
            return 0
        if self.done:
            tell()
        elif tell not in self.waiters:
            self.waiters.append(tell)
        return 0

    cdef int end(self) except -1:
        self.done = True
        waiters, self.waiters = self.waiters, []
        for tell in waiters:
            tell()
        return 0

    def when_done(self, tell):
        """Call tell() on the loop when the read is done or has failed."""
        self.join(tell)


cdef class PageReader:
    def __cinit__(self):
        self.state = <PageReaderState*>calloc(1, sizeof(PageReaderState))
        if self.state == NULL:
            raise MemoryError
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.work, NULL)
        self.state.shared_by = 1
        self.state.event = -1
        self.process = getpid()
        self.reads = {}
        self.brought = {}

    def __dealloc__(self):
        # A forked child has no thread, and the thread may have held the mutex.
        if self.state != NULL and self.process == getpid():
            stop(self.state)
            leave(self.state)

    def serve(self, add_reader, remove_reader, run=None):
        """Serve the loop of this thread, which must not wait, with these functions."""
        self.add_reader = add_reader
        self.remove_reader = remove_reader
        self.run = run
        self.loop_thread = 0 if run is None else PyThread_get_thread_ident()
        self.serving = True

    cdef ColdRead bring_in(self, tuple key, str what, object call, object tell):
        cdef ColdRead read = self.brought.get(key)
        if read is None:
            read = ColdRead.__new__(ColdRead)
            read.waiters = []
            self.brought[key] = read
            self.run(what, call).add_done_callback(lambda done: self.brought_in(key, done))
        read.join(tell)
        return read

    def brought_in(self, key, done):
        """On the loop: notify the waiting readers."""
        cdef ColdRead read = self.brought.pop(key)
        if not done.cancelled():
            read.problem = done.exception()
        read.end()

    def aside(self, str what, call):
        """Have a thread call it. None: the caller may wait itself."""
        return None if self.loop_thread == 0 else self.run(what, call)

    cdef bint has(self, int fd, int64_t position, int64_t size_bytes) noexcept:
        cdef PageReaderState* state = self.state
        cdef int found
        while True:
            found = find_pages(fd, position, size_bytes, state.ask_by, state.busy)
            if found != CANNOT_SAY:
                return found == THERE
            state.ask_by += 1

    cdef bint begin(self) except -1:
        cdef PageReaderState* state = self.state
        if self.running:
            return True
        if self.process != getpid():
            return False
        state.event = kstore_event()
        if state.event < 0:
            return False
        state.shared_by = 2
        state.busy = True
        if kstore_begin_thread(run, state):
            state.shared_by = 1
            return False
        self.running = True
        self.add_reader(state.event, self.collect)
        return True

    cdef ColdRead read(
        self, uint64_t file, int fd, int64_t position, int64_t size_bytes, int64_t file_end,
        object tell
    ):
        cdef PageReaderState* state = self.state
        cdef ColdRead read
        cdef PageJob* job
        cdef Stream* stream
        cdef int own
        if not self.serving or not self.begin() \
                or state.wanted_count + len(self.reads) >= MAX_WANTED // 2:
            return None
        own = kstore_duplicate_fd(fd)
        if own < 0:
            return None
        expect_no_order(own)                # the thread reads ahead, not the reader
        read = ColdRead.__new__(ColdRead)
        read.position = position
        read.size_bytes = size_bytes
        read.waiters = [] if tell is None else [tell]
        self.last_number += 1
        self.reads[self.last_number] = read
        pthread_mutex_lock(&state.mutex)
        job = &state.wanted[(state.first_wanted + state.wanted_count) % MAX_WANTED]
        job.fd = own
        job.position = position
        job.size_bytes = size_bytes
        job.number = self.last_number
        job.begun = False
        state.wanted_count += 1
        pthread_mutex_unlock(&state.mutex)
        pthread_cond_signal(&state.work)
        self.cold_reads += 1
        self.cold_bytes += size_bytes
        stream = self.find_stream(file, position)
        if stream == NULL:
            stream = self.begin_stream(file, position, size_bytes)
        self.go_ahead(stream, fd, position + size_bytes, file_end)
        return read

    cdef int note_read(
        self, uint64_t file, int fd, int64_t position, int64_t size_bytes, int64_t file_end
    ) except -1:
        cdef Stream* stream
        if self.stream_count == 0 or self.state.ask_by == BY_NOTHING:
            return 0
        stream = self.find_stream(file, position)
        if stream != NULL:
            stream.start = position
            self.go_ahead(stream, fd, position + size_bytes, file_end)
        return 0

    cdef Stream* find_stream(self, uint64_t file, int64_t position) noexcept:
        cdef int at
        cdef Stream* stream
        for at in range(self.stream_count):
            stream = &self.streams[at]
            if stream.file == file and stream.start <= position <= stream.end:
                self.looks += 1
                stream.used = self.looks
                return stream
        return NULL

    cdef Stream* begin_stream(self, uint64_t file, int64_t position, int64_t size_bytes) noexcept:
        cdef Stream* stream = &self.streams[0]
        cdef int at
        if self.stream_count < MAX_STREAMS:
            stream = &self.streams[self.stream_count]
            self.stream_count += 1
        else:
            for at in range(1, MAX_STREAMS):
                if self.streams[at].used < stream.used:
                    stream = &self.streams[at]
        self.looks += 1
        stream.file = file
        stream.start = position
        stream.end = position + size_bytes
        stream.window = min(max(size_bytes, SMALLEST_WINDOW), LARGEST_WINDOW) // 2
        stream.used = self.looks
        return stream

    # Keeps at least half a window after `end` read or queued; the window grows.
    cdef int go_ahead(self, Stream* stream, int fd, int64_t end, int64_t file_end) except -1:
        cdef PageReaderState* state = self.state
        cdef PageJob* job
        cdef int own
        stream.end = max(stream.end, end)
        if stream.end - end >= stream.window // 2 or stream.end >= file_end or not self.running:
            return 0
        stream.window = min(stream.window * 2, LARGEST_WINDOW)
        own = kstore_duplicate_fd(fd)
        if own < 0:
            return 0
        pthread_mutex_lock(&state.mutex)
        if state.ahead_count == MAX_AHEAD:  # the oldest job is the least useful
            close(state.ahead[state.first_ahead].fd)
            state.first_ahead = (state.first_ahead + 1) % MAX_AHEAD
            state.ahead_count -= 1
        job = &state.ahead[(state.first_ahead + state.ahead_count) % MAX_AHEAD]
        job.fd = own
        job.position = stream.end
        job.size_bytes = min(stream.window, file_end - stream.end)
        job.begun = False
        state.ahead_count += 1
        stream.end += job.size_bytes
        pthread_mutex_unlock(&state.mutex)
        pthread_cond_signal(&state.work)
        return 0

    def collect(self):
        """On the loop: notify the readers of ranges that were read."""
        cdef PageReaderState* state = self.state
        cdef ColdRead read
        cdef list found = []
        cdef int at
        kstore_take_event(state.event)
        pthread_mutex_lock(&state.mutex)
        for at in range(state.done_count):
            found.append(state.done[at])
        state.done_count = 0
        pthread_mutex_unlock(&state.mutex)
        for number in found:
            read = self.reads.pop(number)
            read.end()

    @property
    def ahead_bytes(self):
        return self.state.ahead_bytes

    @property
    def asks_by(self):
        return ("cachestat", "nowait", "nothing")[self.state.ask_by]

    @asks_by.setter
    def asks_by(self, str way):
        self.state.ask_by = ("cachestat", "nowait", "nothing").index(way)

    def end(self):
        """Stop reading. The current read ends on its own."""
        cdef PageReaderState* state = self.state
        self.serving = False
        self.loop_thread = 0
        if self.process != getpid():
            return
        if self.running and self.remove_reader is not None and not state.ended:
            self.remove_reader(state.event)
        stop(state)
