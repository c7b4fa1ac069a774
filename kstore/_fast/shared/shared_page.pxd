# A page that the writing processes of one log have mapped: the lock among them, and what each of
# them says of the log as it gives the lock back.

from libc.stdint cimport int64_t, uint32_t

from kstore._fast.disk.threads cimport pthread_mutex_t

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>
    #define KSTORE_PAGE_BYTES 4096
    #define KSTORE_PAGE_TEXT 3072
    typedef struct {
        char magic[8];
        uint32_t layout;
        uint8_t incarnation[16];
        _Alignas(64) pthread_mutex_t mutex;
        _Alignas(64) int64_t generation;
        int64_t log_start, log_end, active_base, position, durable;
        uint32_t needs_recovery, deleted, holder_keeps, holder;
        uint32_t sequence, waiting, text_bytes;
        _Alignas(64) char text[KSTORE_PAGE_TEXT];
    } kstore_page;
    """
    ctypedef struct PageState "kstore_page":
        pthread_mutex_t mutex
        int64_t generation          # grows when more than appends and rolls was done
        int64_t log_start
        int64_t log_end
        int64_t active_base         # of the segment that is appended to
        int64_t position            # the end of its last whole batch
        int64_t durable             # every record below it is on the disk
        uint32_t needs_recovery     # what lies behind `position` is not known; 2: the keeper died
        uint32_t deleted            # the log is gone
        uint32_t holder_keeps       # who has the lock does maintenance
        uint32_t holder             # its process

cdef class SharedPage:
    cdef PageState* state
    cdef readonly str path
    cdef uint32_t process           # this one
    cdef public bint keeper         # this process does the log's maintenance

    # With the lock, or the errno. A holder that was killed leaves needs_recovery behind.
    cdef int try_lock(self) noexcept nogil
    cdef int lock_for(self, int timeout_ms) noexcept nogil
    cdef int taken(self, int error, bint inherited) noexcept nogil
    cdef void unlock(self) noexcept nogil
    cdef void wake_waiters(self) noexcept nogil
