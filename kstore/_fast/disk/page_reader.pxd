# A thread that reads cold parts of one log dir's files into the page cache, so that the loop does
# not wait for the disk.

from libc.stdint cimport int64_t, uint64_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    MAX_WANTED = 1024
    MAX_AHEAD = 32
    MAX_STREAMS = 16

# A range to read. The job owns the descriptor.
cdef struct PageJob:
    int fd
    int64_t position
    int64_t size_bytes
    int64_t number
    bint begun                      # the system has been asked to read it

# Shared with the thread. The last of the two to leave frees it.
cdef struct PageReaderState:
    pthread_mutex_t mutex
    pthread_cond_t work
    PageJob[1024] wanted            # rings: what readers wait for,
    int first_wanted
    int wanted_count
    PageJob[32] ahead               # what they will probably need next,
    int first_ahead
    int ahead_count
    int64_t[1024] done              # the numbers of jobs that readers waited for and that are done
    int done_count
    int event                       # an eventfd that wakes the loop
    int ask_by
    int doubts                      # consecutive wrong results of the check
    int64_t ahead_bytes             # bytes read ahead of their readers
    bint busy                       # it is reading now
    bint ended
    int shared_by

# A reader that reads a file in order.
cdef struct Stream:
    uint64_t file
    int64_t start                   # the start of the last read
    int64_t end                     # the end of what was read, or will be read soon
    int64_t window                  # how much is read ahead
    int64_t used                    # the number of the look at which it was last used

# One range that is read into the page cache. Used on the loop.
cdef class ColdRead:
    cdef readonly bint done
    cdef readonly object problem            # the exception that ended it; None: it succeeded
    cdef readonly int64_t position
    cdef readonly int64_t size_bytes
    cdef list waiters               # callables: called when it is done
    cdef int join(self, object tell) except -1
    cdef int end(self) except -1

cdef class PageReader:
    cdef PageReaderState* state
    cdef int process
    cdef bint running
    cdef readonly bint serving      # there is a loop that must not wait
    cdef readonly unsigned long loop_thread # the thread that must not wait; 0: none
    cdef object add_reader
    cdef object remove_reader
    # run(what, call) -> future: calls it in a thread; or None
    cdef object run
    cdef dict brought                       # reads that other threads do: key -> ColdRead
    cdef dict reads                 # this thread's: number -> ColdRead
    cdef int64_t last_number
    cdef Stream[16] streams
    cdef int stream_count
    cdef int64_t looks
    cdef readonly int64_t cold_reads
    cdef readonly int64_t cold_bytes
    # Whether a range can be read without waiting for the disk.
    cdef bint has(self, int fd, int64_t position, int64_t size_bytes) noexcept
    # Read a range in the thread, and for a stream what follows, up to file_end. None: impossible,
    # the caller must wait for the disk. `file` is any number that identifies the file.
    cdef ColdRead read(
        self, uint64_t file, int fd, int64_t position, int64_t size_bytes, int64_t file_end,
        object tell)
    # Have a thread call this, once for all callers with the same key.
    cdef ColdRead bring_in(self, tuple key, str what, object call, object tell)
    # A cached range was read. If it belongs to a stream, the thread reads ahead.
    cdef int note_read(
        self, uint64_t file, int fd, int64_t position, int64_t size_bytes, int64_t file_end
    ) except -1
    cdef Stream* find_stream(self, uint64_t file, int64_t position) noexcept
    cdef Stream* begin_stream(self, uint64_t file, int64_t position, int64_t size_bytes) noexcept
    cdef int go_ahead(self, Stream* stream, int fd, int64_t end, int64_t file_end) except -1
    cdef bint begin(self) except -1
