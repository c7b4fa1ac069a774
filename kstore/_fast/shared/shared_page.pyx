# A page that all processes that write to a log have mapped. Its lock is a robust pthread mutex:
# taking it costs no system call while it is free, and if its holder is killed, the next process
# gets it and learns that. Processes that wait for the log to grow sleep on a futex in the page.
# Linux only.

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

import os

from kstore._fast.disk.threads cimport pthread_mutex_unlock
from kstore._fast.shared.shared_mutex cimport (
    kstore_shared_mutex_init, kstore_shared_mutex_lock, kstore_shared_mutex_try)

cdef extern from *:
    """
    /* Another C library or version of this struct gives the page another layout. */
    #if defined(__GLIBC__)
    #define KSTORE_PAGE_LAYOUT (1u << 24 | 1u << 16 | (uint32_t)sizeof(pthread_mutex_t))
    #else
    #define KSTORE_PAGE_LAYOUT (1u << 24 | 2u << 16 | (uint32_t)sizeof(pthread_mutex_t))
    #endif
    #if defined(__linux__)
    #include <linux/futex.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    static void *kstore_page_map(int fd) {
        void *at = mmap(NULL, KSTORE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return at == MAP_FAILED ? NULL : at;
    }
    static void kstore_page_unmap(void *at) { munmap(at, KSTORE_PAGE_BYTES); }
    static void kstore_page_wake(kstore_page *page) {
        __atomic_add_fetch(&page->sequence, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&page->waiting, __ATOMIC_SEQ_CST)
                && __atomic_exchange_n(&page->waiting, 0, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &page->sequence, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    static uint32_t kstore_page_watch(kstore_page *page) {
        uint32_t seen = __atomic_load_n(&page->sequence, __ATOMIC_SEQ_CST);
        __atomic_store_n(&page->waiting, 1, __ATOMIC_SEQ_CST);
        return seen;
    }
    static void kstore_page_sleep(kstore_page *page, uint32_t seen, int timeout_ms) {
        struct timespec span = { timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000 };
        syscall(SYS_futex, &page->sequence, FUTEX_WAIT, seen, &span, NULL, 0);
    }
    #else
    static void *kstore_page_map(int fd) { errno = ENOSYS; return NULL; }
    static void kstore_page_unmap(void *at) { }
    static void kstore_page_wake(kstore_page *page) { }
    static uint32_t kstore_page_watch(kstore_page *page) { return 0; }
    static void kstore_page_sleep(kstore_page *page, uint32_t seen, int timeout_ms) { }
    #endif
    """
    ctypedef struct FullPage "kstore_page":
        char[8] magic
        uint32_t layout
        uint8_t[16] incarnation
        uint32_t text_bytes
        char[3072] text
    int PAGE_BYTES "KSTORE_PAGE_BYTES"
    int PAGE_TEXT "KSTORE_PAGE_TEXT"
    uint32_t LAYOUT "KSTORE_PAGE_LAYOUT"
    void* kstore_page_map(int fd) nogil
    void kstore_page_unmap(void* at) nogil
    void kstore_page_wake(PageState* page) nogil
    uint32_t kstore_page_watch(PageState* page) nogil
    void kstore_page_sleep(PageState* page, uint32_t seen, int timeout_ms) nogil



cdef const char* MAGIC = "kstrpage"


cdef class SharedPage:
    def __init__(self, int fd, str path not None, bytes incarnation not None):
        """Map the file. A page of another incarnation is written anew: no living process has it
        mapped, and the caller makes sure that no other process does this now.
        """
        cdef FullPage* page
        cdef int error
        if len(incarnation) != 16:
            raise ValueError(f"an incarnation has 16 bytes, not {len(incarnation)}")
        self.path = path
        self.process = <uint32_t>os.getpid()
        os.ftruncate(fd, PAGE_BYTES)
        self.state = <PageState*>kstore_page_map(fd)
        if self.state == NULL:
            error = errno
            raise OSError(error, os.strerror(error), path)
        page = <FullPage*>self.state
        if memcmp(page.magic, MAGIC, 8) == 0 and page.layout == LAYOUT \
                and memcmp(page.incarnation, <const char*>incarnation, 16) == 0:
            return
        memset(page, 0, PAGE_BYTES)
        error = kstore_shared_mutex_init(&self.state.mutex)
        if error:
            raise OSError(error, os.strerror(error), path)
        self.state.needs_recovery = 1
        page.layout = LAYOUT
        memcpy(page.incarnation, <const char*>incarnation, 16)
        memcpy(page.magic, MAGIC, 8)

    def __dealloc__(self):
        if self.state != NULL:
            kstore_page_unmap(self.state)

    cdef int try_lock(self) noexcept nogil:
        cdef int inherited = 0
        cdef int error = kstore_shared_mutex_try(&self.state.mutex, &inherited)
        return self.taken(error, inherited)

    cdef int lock_for(self, int timeout_ms) noexcept nogil:
        cdef int inherited = 0
        cdef int error = kstore_shared_mutex_lock(&self.state.mutex, timeout_ms, &inherited)
        return self.taken(error, inherited)

    cdef int taken(self, int error, bint inherited) noexcept nogil:
        cdef PageState* state = self.state
        if inherited:               # the holder was killed: its last change may be unfinished
            if not state.needs_recovery:
                state.needs_recovery = 1
            if state.holder_keeps:
                state.needs_recovery = 2        # it may have been cleaning
                state.generation += 1
        if error == 0:
            state.holder = self.process
            state.holder_keeps = self.keeper
        return error

    cdef void unlock(self) noexcept nogil:
        pthread_mutex_unlock(&self.state.mutex)

    cdef void wake_waiters(self) noexcept nogil:
        kstore_page_wake(self.state)

    @property
    def generation(self):
        return self.state.generation

    @property
    def log_start_offset(self):
        return self.state.log_start

    @property
    def log_end_offset(self):
        return self.state.log_end

    @property
    def active_base(self):
        return self.state.active_base

    @property
    def position(self):
        return self.state.position

    @property
    def durable_offset(self):
        return self.state.durable

    @property
    def holder(self):
        return self.state.holder

    @property
    def needs_recovery(self):
        return bool(self.state.needs_recovery)

    @property
    def keeper_died(self):
        return self.state.needs_recovery == 2

    @needs_recovery.setter
    def needs_recovery(self, bint needed):
        self.state.needs_recovery = needed

    @property
    def deleted(self):
        return bool(self.state.deleted)

    def mark_deleted(self):
        self.state.deleted = 1
        self.wake_waiters()

    @property
    def text(self):
        cdef FullPage* page = <FullPage*>self.state
        return (<char*>page.text)[:min(page.text_bytes, <uint32_t>PAGE_TEXT)]

    @text.setter
    def text(self, bytes text not None):
        cdef FullPage* page = <FullPage*>self.state
        if len(text) > PAGE_TEXT:
            raise ValueError(f"{len(text)} bytes do not fit: {PAGE_TEXT} do")
        memcpy(page.text, <const char*>text, len(text))
        page.text_bytes = <uint32_t>len(text)

    # -- waiting

    def watch(self):
        """The argument for `sleep`. Look at the log between the two calls."""
        return kstore_page_watch(self.state)

    def sleep(self, uint32_t seen, int timeout_ms):
        """Wait for `wake`, at most this long."""
        with nogil:
            kstore_page_sleep(self.state, seen, timeout_ms)

    def wake(self):
        self.wake_waiters()
