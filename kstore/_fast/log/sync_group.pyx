# Group commit: one of the threads that wait for the disk syncs for all. This module only waits,
# without the GIL; the leader does the sync and says how far it reached. It uses no file.

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore._fast.disk.threads cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal,
    pthread_cond_timedwait, pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock)

cdef int64_t NS = 1000000000
cdef int64_t LONGEST_GATHERING_NS = 2000000


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * NS + now.tv_nsec


cdef class SyncGroup:
    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.changed, NULL)
        pthread_cond_init(&self.joined, NULL)
        self.durable = -1

    def __dealloc__(self):
        pthread_cond_destroy(&self.changed)
        pthread_cond_destroy(&self.joined)
        pthread_mutex_destroy(&self.mutex)

    # True: the caller leads a round. False: target is durable.
    cdef bint join(self, int64_t target) noexcept nogil:
        cdef bint leads = False
        cdef int64_t round
        pthread_mutex_lock(&self.mutex)
        round = self.round - 1
        while self.durable < target:
            if round != self.round:
                round = self.round
                self.waiting += 1
                if self.gathering and self.waiting >= self.expected:
                    pthread_cond_signal(&self.joined)
            if not self.syncing:
                self.syncing = leads = True
                self.gather()
                break
            pthread_cond_wait(&self.changed, &self.mutex)
        pthread_mutex_unlock(&self.mutex)
        return leads

    # Waits, for at most half the time of a sync, for as many threads as in the last round: they
    # were just woken and will soon return with their next record.
    cdef void gather(self) noexcept nogil:
        cdef timespec until
        cdef int64_t end
        if self.waiting < self.expected:
            end = now_ns() + min(self.took_ns // 2, LONGEST_GATHERING_NS)
            until.tv_sec = end // NS
            until.tv_nsec = end % NS
            self.gathering = True
            while self.waiting < self.expected:
                if pthread_cond_timedwait(&self.joined, &self.mutex, &until) != 0:
                    break
            self.gathering = False
        self.began_ns = now_ns()

    def wait(self, int64_t target):
        cdef bint leads
        with nogil:
            leads = self.join(target)
        return bool(leads)

    def done(self, int64_t durable):
        with nogil:
            pthread_mutex_lock(&self.mutex)
            self.durable = durable
            self.syncing = False
            self.expected = self.waiting
            self.waiting = 0
            self.round += 1
            self.took_ns = max(now_ns() - self.began_ns, <int64_t>0)
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.mutex)

    def rewind(self, int64_t durable):
        with nogil:
            pthread_mutex_lock(&self.mutex)
            self.durable = min(self.durable, durable)
            pthread_mutex_unlock(&self.mutex)
