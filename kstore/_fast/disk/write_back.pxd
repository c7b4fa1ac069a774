# Early write-back for the files of one log dir. A thread asks the system to write new data to the
# disk early, so that the system does not throttle writers.

from libc.stdint cimport int64_t, uint64_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    MAX_NOTES = 256

# A range of a file. The note owns the descriptor.
cdef struct Note:
    int fd
    int64_t position
    int64_t size_bytes
    uint64_t owner

# Shared with the thread. The last of the two to leave frees it.
cdef struct WriteBackState:
    pthread_mutex_t mutex
    pthread_cond_t work
    pthread_cond_t room
    Note[256] notes                 # a ring
    int first
    int count
    int64_t budget_bytes
    int64_t start_bytes             # the thread starts at this many unwritten bytes
    int64_t unwritten_bytes         # of the notes
    int64_t written_bytes
    int64_t busy_since_ms           # the start of its current system call; 0: there is none
    bint over_budget
    bint ended
    int shared_by

cdef class WriteBack:
    cdef WriteBackState* state
    cdef bint running
    cdef int process                # the process that created it
    cdef readonly bint possible     # the system supports it, and it is on
    cdef readonly int64_t noted_bytes
    # Bytes that files have written and not noted yet. The caller holds the GIL.
    cdef int64_t loose_bytes
    cdef int64_t loose_limit        # above this, smaller ranges are noted
    cdef int64_t step_bytes         # a file makes a note after this many bytes
    cdef object find_budget         # callable() -> bytes; None: the budget is fixed
    cdef int64_t budget_found_ms
    cdef int64_t loose_since_ms
    # Write this range early, unless the owner (any number) calls `forget` first. False: it was
    # refused, the caller may try again.
    cdef bint note(self, int fd, int64_t position, int64_t size_bytes, uint64_t owner) except -1
    # The owner's file is closed or removed: drop its notes.
    cdef int forget(self, uint64_t owner) except -1
    # Files have written much in small ranges.
    cdef int regard_loose(self) except -1
    # More is unwritten than the budget allows: large writers should wait.
    cdef bint is_over_budget(self) noexcept nogil
    # Waits without the GIL until the budget is met. False: not in time.
    cdef bint wait_for_room(self, int64_t timeout_ms) noexcept nogil
    cdef int take_budget(self, int64_t budget) except -1
