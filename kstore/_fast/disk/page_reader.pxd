# The thread that reads cold parts of one log dir's files into the page cache, so that the loop does
# not wait for them.

from libc.stdint cimport int64_t, uint64_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    MAX_WANTED = 1024
    MAX_AHEAD = 32
    MAX_STREAMS = 16

# A stretch to be read; the descriptor is this job's own.
cdef struct PageJob:
    int fd
    int64_t position
    int64_t size_bytes
    int64_t number
    bint begun                      # the system was told

# Shared with the thread; the last of the two frees it.
cdef struct PageReaderState:
    pthread_mutex_t mutex
    pthread_cond_t work
    PageJob[1024] wanted            # rings: what somebody waits for,
    int first_wanted
    int wanted_count
    PageJob[32] ahead               # what is probably wanted next,
    int first_ahead
    int ahead_count
    int64_t[1024] done              # the numbers of what was wanted and is read
    int done_count
    int event                       # the loop is told here
    int ask_by
    int doubts                      # how often the answer was wrong in succession
    int64_t ahead_bytes             # that were read before anybody wanted them
    bint busy                       # it reads just now
    bint ended
    int shared_by

# Somebody reads on and on here.
cdef struct Stream:
    uint64_t file
    int64_t start                   # of what was read last
    int64_t end                     # up to here it was read, or is about to be
    int64_t window                  # how much is read ahead
    int64_t used                    # when, in looks

# One stretch that is read in. On the loop.
cdef class ColdRead:
    cdef readonly bint done
    cdef readonly object problem            # the exception that ended it, or None
    cdef readonly int64_t position
    cdef readonly int64_t size_bytes
    cdef list waiters               # callables
    cdef int join(self, object tell) except -1
    cdef int end(self) except -1

cdef class PageReader:
    cdef PageReaderState* state
    cdef int process
    cdef bint running
    cdef readonly bint serving      # there is a loop that may not wait
    cdef readonly unsigned long loop_thread # who must not wait; 0: nobody that could be helped
    cdef object add_reader
    cdef object remove_reader
    cdef object run                         # a thread's run(what, call) -> future, or None
    cdef dict brought                       # what a thread has been given: key -> ColdRead
    cdef dict reads                 # number -> ColdRead
    cdef int64_t last_number
    cdef Stream[16] streams
    cdef int stream_count
    cdef int64_t looks
    cdef readonly int64_t cold_reads
    cdef readonly int64_t cold_bytes
    # Whether a stretch can be read without waiting for a disk.
    cdef bint has(self, int fd, int64_t position, int64_t size_bytes) noexcept
    # Read it, in the thread, and what follows up to file_end where somebody reads on. None: it
    # can't, whoever asks has to wait for the disk. `file` is any number.
    cdef ColdRead read(
        self, uint64_t file, int fd, int64_t position, int64_t size_bytes, int64_t file_end,
        object tell)
    # Have a thread call what brings something into memory, once for all who lack it (by key).
    cdef ColdRead bring_in(self, tuple key, str what, object call, object tell)
    # A stretch that was there was read: where that is a stream, the thread goes on ahead of it.
    cdef int note_read(
        self, uint64_t file, int fd, int64_t position, int64_t size_bytes, int64_t file_end
    ) except -1
    cdef Stream* find_stream(self, uint64_t file, int64_t position) noexcept
    cdef Stream* begin_stream(self, uint64_t file, int64_t position, int64_t size_bytes) noexcept
    cdef int go_ahead(self, Stream* stream, int fd, int64_t end, int64_t file_end) except -1
    cdef bint begin(self) except -1
