# A page that all processes that write to a log have mapped. It has the lock between them, and the
# state of the log that each publishes when it releases the lock.

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
        int64_t generation          # increases when more than appends and rolls was done
        int64_t log_start
        int64_t log_end
        int64_t active_base         # of the active segment
        int64_t position            # the end of its last complete batch
        int64_t durable             # every record below it is on disk
        # 1: what follows `position` is unknown; 2: the keeper was killed
        uint32_t needs_recovery
        uint32_t deleted            # the log was deleted
        uint32_t holder_keeps       # the holder of the lock does maintenance
        uint32_t holder             # its process id

cdef class SharedPage:
    cdef PageState* state
    cdef readonly str path
    cdef uint32_t process           # this process's id
    cdef public bint keeper         # this process does the log's maintenance

    # Return 0 with the lock, or an errno. If a holder was killed, needs_recovery is set.
    cdef int try_lock(self) noexcept nogil
    cdef int lock_for(self, int timeout_ms) noexcept nogil
    cdef int taken(self, int error, bint inherited) noexcept nogil
    cdef void unlock(self) noexcept nogil
    cdef void wake_waiters(self) noexcept nogil
