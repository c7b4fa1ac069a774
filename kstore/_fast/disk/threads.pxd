# POSIX threads, as far as the disk's threads need them. They use no Python objects and handle no
# signals.

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_timedwait(
        pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    /* Starts a detached thread with a small stack; returns the errno. */
    static int kstore_begin_thread(void *(*run)(void *), void *arg) {
        pthread_attr_t attributes;
        pthread_t thread;
        sigset_t all, before;
        int error = pthread_attr_init(&attributes);
        if (error) return error;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 256 * 1024);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&thread, &attributes, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        return error;
    }
    """
    int kstore_begin_thread(void* (*run)(void*) noexcept nogil, void* arg)


cdef inline int64_t monotonic_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


# The deadline after this many milliseconds, for a condition variable.
cdef inline timespec until_ms(int64_t timeout_ms) noexcept nogil:
    cdef timespec until
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_sec += timeout_ms // 1000
    until.tv_nsec += timeout_ms % 1000 * 1000000
    if until.tv_nsec >= 1000000000:
        until.tv_sec += 1
        until.tv_nsec -= 1000000000
    return until
