# A POSIX mutex in memory that processes share. It is robust: when its holder is killed, the next
# one gets it and is told. A free one costs no system call. Linux only: elsewhere there is no robust
# mutex, and every call answers ENOSYS.

from kstore._fast.disk.threads cimport pthread_mutex_t

cdef extern from * nogil:
    """
    #ifndef KSTORE_SHARED_MUTEX
    #define KSTORE_SHARED_MUTEX
    #include <errno.h>
    #include <pthread.h>
    #include <time.h>
    #if defined(__linux__)
    static int kstore_shared_mutex_init(pthread_mutex_t *mutex) {
        pthread_mutexattr_t attributes;
        int error = pthread_mutexattr_init(&attributes);
        if (error) return error;
        error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        if (!error) error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        if (!error) error = pthread_mutex_init(mutex, &attributes);
        pthread_mutexattr_destroy(&attributes);
        return error;
    }
    static int kstore_shared_mutex_taken(pthread_mutex_t *mutex, int error, int *inherited) {
        *inherited = error == EOWNERDEAD;
        return *inherited ? pthread_mutex_consistent(mutex) : error;
    }
    static int kstore_shared_mutex_try(pthread_mutex_t *mutex, int *inherited) {
        return kstore_shared_mutex_taken(mutex, pthread_mutex_trylock(mutex), inherited);
    }
    static int kstore_shared_mutex_lock(pthread_mutex_t *mutex, int timeout_ms, int *inherited) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) { until.tv_sec += 1; until.tv_nsec -= 1000000000; }
        return kstore_shared_mutex_taken(
            mutex, pthread_mutex_timedlock(mutex, &until), inherited);
    }
    #else
    static int kstore_shared_mutex_init(pthread_mutex_t *mutex) { return ENOSYS; }
    static int kstore_shared_mutex_try(pthread_mutex_t *mutex, int *inherited) {
        *inherited = 0;
        return ENOSYS;
    }
    static int kstore_shared_mutex_lock(pthread_mutex_t *mutex, int timeout_ms, int *inherited) {
        *inherited = 0;
        return ENOSYS;
    }
    #endif
    #endif
    """
    # In memory that is zeros. Each answers an errno, 0 with the mutex; EBUSY and ETIMEDOUT without.
    # inherited: its last holder was killed, and left behind what it was doing.
    int kstore_shared_mutex_init(pthread_mutex_t* mutex)
    int kstore_shared_mutex_try(pthread_mutex_t* mutex, int* inherited)
    int kstore_shared_mutex_lock(pthread_mutex_t* mutex, int timeout_ms, int* inherited)
