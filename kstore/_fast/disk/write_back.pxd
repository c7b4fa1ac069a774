# What was written to the files of one log dir and is not on the disk yet: a thread has the system
# write it early, so that nobody is throttled for it.

from libc.stdint cimport int64_t, uint64_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    MAX_NOTES = 256

# A stretch of a file; the descriptor is this note's own.
cdef struct Note:
    int fd
    int64_t position
    int64_t size_bytes
    uint64_t owner

# Shared with the thread; the last of the two frees it.
cdef struct WriteBackState:
    pthread_mutex_t mutex
    pthread_cond_t work
    pthread_cond_t room
    Note[256] notes                 # a ring
    int first
    int count
    int64_t budget_bytes
    int64_t start_bytes             # with so much unwritten, the thread begins
    int64_t unwritten_bytes         # of what was noted
    int64_t written_bytes
    int64_t busy_since_ms           # when its system call began; 0: none is under way
    bint over_budget
    bint ended
    int shared_by

cdef class WriteBack:
    cdef WriteBackState* state
    cdef bint running
    cdef int process                # who made it
    cdef readonly bint possible     # the system can do it, and it is not switched off
    cdef readonly int64_t noted_bytes
    # Told by files: what they wrote and have not noted. The caller holds the GIL.
    cdef int64_t loose_bytes
    cdef int64_t loose_limit        # with so much, smaller stretches are noted
    cdef int64_t step_bytes         # a file that has written so much makes a note
    cdef object find_budget         # callable() -> bytes, or None: the budget is given
    cdef int64_t budget_found_ms
    cdef int64_t loose_since_ms
    # Write this stretch early. False: not taken, the caller may note it again. It is written if the
    # owner, any number, has not `forgotten` it before.
    cdef bint note(self, int fd, int64_t position, int64_t size_bytes, uint64_t owner) except -1
    # The owner's file is closed or gone: its notes are, too.
    cdef int forget(self, uint64_t owner) except -1
    # Files have written much in small stretches.
    cdef int regard_loose(self) except -1
    # More is unwritten than the budget allows: who writes much should wait for room.
    cdef bint is_over_budget(self) noexcept nogil
    # Waits, without the GIL, until the budget is kept; False: not within the time.
    cdef bint wait_for_room(self, int64_t timeout_ms) noexcept nogil
    cdef int take_budget(self, int64_t budget) except -1
