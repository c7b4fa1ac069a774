# A POSIX mutex in memory that processes share. It is robust: if its holder is killed, the next
# process gets it and learns that. Taking a free mutex costs no system call. Only Linux has robust
# mutexes: elsewhere every call returns ENOSYS.

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
    # The memory must be zeros. Each call returns an errno: 0 with the mutex; EBUSY or ETIMEDOUT
    # without. inherited: the last holder was killed, and may have left a change unfinished.
    int kstore_shared_mutex_init(pthread_mutex_t* mutex)
    int kstore_shared_mutex_try(pthread_mutex_t* mutex, int* inherited)
    int kstore_shared_mutex_lock(pthread_mutex_t* mutex, int timeout_ms, int* inherited)
