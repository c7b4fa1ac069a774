# Early write-back: a thread per log dir asks the system to write new data to the disk before so
# much is unwritten that the system makes every writer wait. Ranges are noted in steps of some
# megabytes. Little unwritten data costs nothing, not even the thread.
#
# The thread opens each file again. An error is reported once to each open file description: if the
# thread waited on the log's own one, the log's next fdatasync would not see it.

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free

from kstore._fast.disk.threads cimport (
    kstore_begin_thread, monotonic_ms, pthread_cond_broadcast, pthread_cond_destroy,
    pthread_cond_init, pthread_cond_signal, pthread_cond_timedwait, pthread_cond_wait,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, timespec,
    until_ms)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <unistd.h>
    #ifdef SYNC_FILE_RANGE_WRITE
    # define KSTORE_WRITES_EARLY 1
    static int kstore_begin_write(int fd, int64_t position, int64_t size) {
        return sync_file_range(fd, position, size, SYNC_FILE_RANGE_WRITE);
    }
    static int kstore_wait_written(int fd, int64_t position, int64_t size) {
        return sync_file_range(fd, position, size, SYNC_FILE_RANGE_WAIT_BEFORE
                               | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    }
    #else
    # define KSTORE_WRITES_EARLY 0
    static int kstore_begin_write(int fd, int64_t position, int64_t size) { return 0; }
    static int kstore_wait_written(int fd, int64_t position, int64_t size) { return 0; }
    #endif
    static int kstore_open_readable(const char *path) { return open(path, O_RDONLY | O_CLOEXEC); }
    static int kstore_duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }
    """
    bint KSTORE_WRITES_EARLY
    int kstore_begin_write(int fd, int64_t position, int64_t size)
    int kstore_wait_written(int fd, int64_t position, int64_t size)
    int kstore_open_readable(const char* path)
    int kstore_duplicate(int fd)
    int close(int fd)
    int getpid()

cdef enum:
    UNDER_WAY = 4                           # writes that the system has started
    LOOSE_STEP_BYTES = 65536
    BUDGET_HOLDS_MS = 10000
    LOOSE_HOLDS_MS = 35000                  # by then the system has written it by itself

cdef int64_t LARGEST_STEP_BYTES = 8 * 1024 * 1024
cdef int64_t SMALLEST_STEP_BYTES = 1024 * 1024
cdef int64_t LARGEST_START_BYTES = 128 * 1024 * 1024
cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF


cdef inline int compare(WriteBackState* state) noexcept nogil:
    cdef int64_t unwritten = state.unwritten_bytes
    if unwritten > state.budget_bytes:
        state.over_budget = True
    elif state.over_budget and unwritten <= state.budget_bytes - state.budget_bytes // 8:
        state.over_budget = False
        pthread_cond_broadcast(&state.room)
    return 0


# The note's file, opened again; the note's own descriptor if that fails.
cdef int reopen(int fd) noexcept nogil:
    cdef char[40] path
    cdef int opened
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd)
    opened = kstore_open_readable(path)
    if opened < 0:
        return fd
    close(fd)
    return opened


cdef void begin(WriteBackState* state, Note* note) noexcept nogil:
    cdef int fd = note.fd
    note.fd = reopen(fd)
    kstore_begin_write(note.fd, note.position, note.size_bytes)
    if note.fd == fd:               # errors on this descriptor belong to the log: do not wait
        close(fd)
        note.fd = -1


cdef void end(Note* note) noexcept nogil:
    if note.fd >= 0:
        kstore_wait_written(note.fd, note.position, note.size_bytes)
        close(note.fd)
        note.fd = -1


cdef void* run(void* arg) noexcept nogil:
    cdef WriteBackState* state = <WriteBackState*>arg
    cdef Note[4] begun
    cdef Note note
    cdef int oldest = 0
    cdef int under_way = 0
    cdef int64_t begun_bytes = 0
    pthread_mutex_lock(&state.mutex)
    while not state.ended:
        if state.count and under_way < UNDER_WAY \
                and state.unwritten_bytes - begun_bytes > state.start_bytes:
            note = state.notes[state.first]
            state.first = (state.first + 1) % MAX_NOTES
            state.count -= 1
            state.busy_since_ms = monotonic_ms()
            pthread_mutex_unlock(&state.mutex)
            begin(state, &note)
            pthread_mutex_lock(&state.mutex)
            begun[(oldest + under_way) % UNDER_WAY] = note
            under_way += 1
            begun_bytes += note.size_bytes
        elif under_way:
            note = begun[oldest]
            oldest = (oldest + 1) % UNDER_WAY
            under_way -= 1
            state.busy_since_ms = monotonic_ms()
            pthread_mutex_unlock(&state.mutex)
            end(&note)
            pthread_mutex_lock(&state.mutex)
            begun_bytes -= note.size_bytes
            state.unwritten_bytes -= note.size_bytes
            state.written_bytes += note.size_bytes
            compare(state)
        else:
            state.busy_since_ms = 0
            pthread_cond_wait(&state.work, &state.mutex)
    while under_way:
        close_note(&begun[oldest])
        oldest = (oldest + 1) % UNDER_WAY
        under_way -= 1
    pthread_mutex_unlock(&state.mutex)
    leave(state)
    return NULL


cdef void close_note(Note* note) noexcept nogil:
    if note.fd >= 0:
        close(note.fd)
        note.fd = -1


# The last of the two to leave frees the state.
cdef void leave(WriteBackState* state) noexcept nogil:
    cdef bint last
    pthread_mutex_lock(&state.mutex)
    state.shared_by -= 1
    last = state.shared_by == 0
    pthread_mutex_unlock(&state.mutex)
    if not last:
        return
    while state.count:
        close_note(&state.notes[state.first])
        state.first = (state.first + 1) % MAX_NOTES
        state.count -= 1
    pthread_cond_destroy(&state.work)
    pthread_cond_destroy(&state.room)
    pthread_mutex_destroy(&state.mutex)
    free(state)


cdef class WriteBack:
    def __cinit__(self, find_budget=None):
        self.state = <WriteBackState*>calloc(1, sizeof(WriteBackState))
        if self.state == NULL:
            raise MemoryError
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.work, NULL)
        pthread_cond_init(&self.state.room, NULL)
        self.state.shared_by = 1
        self.process = getpid()
        self.loose_since_ms = monotonic_ms()
        self.set_budget(-1, find_budget)

    def __dealloc__(self):
        # A forked child has no thread, and the thread may have held the mutex.
        if self.state != NULL and self.process == getpid():
            self.close()
            leave(self.state)

    cdef int take_budget(self, int64_t budget) except -1:
        cdef WriteBackState* state = self.state
        pthread_mutex_lock(&state.mutex)
        state.budget_bytes = budget
        state.start_bytes = min(budget // 4, LARGEST_START_BYTES)
        compare(state)
        pthread_cond_signal(&state.work)
        pthread_mutex_unlock(&state.mutex)
        self.step_bytes = min(max(budget // 32, SMALLEST_STEP_BYTES), LARGEST_STEP_BYTES)
        self.loose_limit = budget // 4
        return 0

    def set_budget(self, int64_t size_bytes, find_budget=None):
        """The limit of unwritten bytes. Below 0: find_budget() gives it, asked again now and then.
        0: no early write-back.
        """
        self.possible = KSTORE_WRITES_EARLY and size_bytes != 0 and not self.state.ended
        self.find_budget = find_budget if size_bytes < 0 else None
        self.budget_found_ms = 0
        self.take_budget(size_bytes if size_bytes > 0 else LARGEST_START_BYTES * 4)
        if not self.possible:
            self.step_bytes = self.loose_limit = NEVER

    cdef bint note(self, int fd, int64_t position, int64_t size_bytes, uint64_t owner) except -1:
        cdef WriteBackState* state = self.state
        cdef Note* note
        cdef int64_t now
        cdef int own
        if not self.possible or self.process != getpid():
            return False
        now = monotonic_ms()
        if self.find_budget is not None and (
                self.budget_found_ms == 0 or now - self.budget_found_ms > BUDGET_HOLDS_MS):
            self.budget_found_ms = now
            self.take_budget(self.find_budget())
        if state.count == MAX_NOTES:
            return False
        own = kstore_duplicate(fd)
        if own < 0:
            return False                    # no descriptor is left: the system writes it later
        if not self.running:
            state.shared_by = 2
            if kstore_begin_thread(run, state):
                state.shared_by = 1
                close(own)
                return False
            self.running = True
        pthread_mutex_lock(&state.mutex)
        note = &state.notes[(state.first + state.count) % MAX_NOTES]
        note.fd = own
        note.position = position
        note.size_bytes = size_bytes
        note.owner = owner
        state.count += 1
        state.unwritten_bytes += size_bytes
        compare(state)
        if state.unwritten_bytes > state.start_bytes:
            pthread_cond_signal(&state.work)
        pthread_mutex_unlock(&state.mutex)
        self.noted_bytes += size_bytes
        self.loose_bytes = max(self.loose_bytes - size_bytes, <int64_t>0)
        if self.step_bytes == LOOSE_STEP_BYTES and self.loose_bytes < state.budget_bytes // 8:
            self.take_budget(state.budget_bytes)
        return True

    cdef int forget(self, uint64_t owner) except -1:
        cdef WriteBackState* state = self.state
        cdef Note note
        cdef int left
        if self.process != getpid():
            return 0
        pthread_mutex_lock(&state.mutex)
        for left in range(state.count):     # look at each note once
            note = state.notes[state.first]
            state.first = (state.first + 1) % MAX_NOTES
            if note.owner == owner:
                state.count -= 1
                state.unwritten_bytes -= note.size_bytes
                close_note(&note)
            else:
                state.notes[(state.first + state.count - 1) % MAX_NOTES] = note
        compare(state)
        pthread_mutex_unlock(&state.mutex)
        return 0

    cdef int regard_loose(self) except -1:
        cdef int64_t now = monotonic_ms()
        cdef int64_t budget = self.state.budget_bytes
        if now - self.loose_since_ms > LOOSE_HOLDS_MS:
            self.loose_since_ms = now
            self.loose_bytes = 0
            self.take_budget(budget)        # back to the usual steps
            return 0
        self.step_bytes = LOOSE_STEP_BYTES
        self.loose_limit = self.loose_bytes + max(budget // 4, LARGEST_STEP_BYTES)
        return 0

    cdef bint is_over_budget(self) noexcept nogil:
        return self.state.over_budget

    cdef bint wait_for_room(self, int64_t timeout_ms) noexcept nogil:
        cdef WriteBackState* state = self.state
        cdef timespec until
        cdef bint over
        if not state.over_budget:
            return True
        until = until_ms(timeout_ms)
        pthread_mutex_lock(&state.mutex)
        while state.over_budget and not state.ended:
            if pthread_cond_timedwait(&state.room, &state.mutex, &until) != 0:
                break
        over = state.over_budget
        pthread_mutex_unlock(&state.mutex)
        return not over

    # -- from Python

    def add(self, int fd, int64_t position, int64_t size_bytes, uint64_t owner=0):
        """Note a range of a file; False: it was refused."""
        return bool(self.note(fd, position, size_bytes, owner))

    def drop(self, uint64_t owner):
        """Drop an owner's notes that have not been started."""
        self.forget(owner)

    def wait(self, int64_t timeout_ms):
        """Wait until the budget is met; False: not in time."""
        cdef bint kept
        with nogil:
            kept = self.wait_for_room(timeout_ms)
        return bool(kept)

    @property
    def over_budget(self):
        return bool(self.is_over_budget())

    @property
    def budget_bytes(self):
        return self.state.budget_bytes

    @property
    def unwritten_bytes(self):
        return self.state.unwritten_bytes

    @property
    def written_bytes(self):
        return self.state.written_bytes

    @property
    def busy_ms(self):
        """How long the thread's system call has been running; 0: none is."""
        cdef int64_t since = self.state.busy_since_ms
        return max(monotonic_ms() - since, 1) if since else 0

    def close(self):
        """Stop early write-back. The current write ends on its own."""
        cdef WriteBackState* state = self.state
        self.possible = False
        if self.process != getpid():
            return
        pthread_mutex_lock(&state.mutex)
        state.ended = True
        state.over_budget = False
        pthread_cond_broadcast(&state.room)
        pthread_cond_signal(&state.work)
        pthread_mutex_unlock(&state.mutex)
