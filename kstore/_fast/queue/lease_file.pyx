"""The file with a queue's state. All users of the queue map it.

It is a page with a header, followed by a ring of slots of 16 bytes: one for each offset from the
floor (all messages before it are done) to the head (no message from there on was ever taken). A
slot that a power cut lost does not have its offset: its message is delivered again.
"""

from libc.errno cimport EBUSY, ETIMEDOUT, errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport close as c_close, getpid

import os

from kstore._fast.disk.threads cimport pthread_mutex_t, pthread_mutex_unlock
from kstore._fast.shared.shared_mutex cimport (
    kstore_shared_mutex_init, kstore_shared_mutex_lock, kstore_shared_mutex_try)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    /* A lock on one byte far behind the file's end. It ends with its process. */
    static int kstore_owner_lock(int fd, int owner, int wanted) {
        struct flock range;
        memset(&range, 0, sizeof range);
        range.l_type = wanted < 0 ? F_UNLCK : F_WRLCK;
        range.l_whence = SEEK_SET;
        range.l_start = ((off_t)1 << 40) + owner;
        range.l_len = 1;
        if (wanted) return fcntl(fd, F_OFD_SETLK, &range);
        if (fcntl(fd, F_OFD_GETLK, &range) != 0) return -1;
        return range.l_type == F_UNLCK ? 0 : 1;
    }
    /* Reserves disk space for the file's first bytes. Returns an errno. */
    static int kstore_take_space(int fd, off_t size) {
    #ifdef __APPLE__
        static const char zeros[4096];
        off_t at = lseek(fd, 0, SEEK_END);
        while (at >= 0 && at < size) {
            size_t step = size - at < (off_t)sizeof zeros ? (size_t)(size - at) : sizeof zeros;
            ssize_t done = pwrite(fd, zeros, step, at);
            if (done < 0 && errno != EINTR) return errno;
            if (done > 0) at += done;
        }
        return at < 0 ? errno : 0;
    #else
        return posix_fallocate(fd, 0, size);
    #endif
    }
    """
    int kstore_owner_lock(int fd, int owner, int wanted)
    int kstore_take_space(int fd, int64_t size)
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t offset)
    void* mmap(void* address, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void* address, size_t size)
    int PROT_READ
    int PROT_WRITE
    int MAP_SHARED
    void* MAP_FAILED

cdef enum:
    VERSION = 1
    PAGE_BYTES = 4096
    LOCK_MS = 10000

cdef bytes MAGIC = b"KSQUEUE\x00"


class LeaseFileError(Exception):
    """The file can't be used as a queue's state; the message says why."""


cdef class LeaseFile:
    """One queue's state, opened by one owner. Threads and processes may use it at the same time.

    ``fd`` is the open file, which the table owns from now on. The caller holds its lock during this
    call. Times are in ms: ``now_ms`` of a clock that never decreases and is the same in all
    processes, ``wall_ms`` the time of day. Raises LeaseFileError and OSError.
    """
    def __cinit__(self):
        self.fd = self.owner = -1
        self.lock_ms = LOCK_MS
        self.closed = True

    def __init__(self, int fd, bytes topic_id, bytes boot_id, int64_t start_offset):
        if len(topic_id) != 16 or len(boot_id) != 16:
            raise ValueError("topic_id and boot_id have 16 bytes each")
        if start_offset < 0:
            raise ValueError(f"start_offset is {start_offset}: an offset is 0 or more")
        self.fd = fd
        if os.fstat(fd).st_size == 0:
            self.reserve(FIRST_CAPACITY)
        elif os.fstat(fd).st_size < PAGE_BYTES:
            raise LeaseFileError("it is too short")
        self.head = <kstore_leases*>self.map_part(0, PAGE_BYTES)
        if self.head.version == 0:          # its creator did not finish it
            self.reserve(FIRST_CAPACITY)
            self.begin(topic_id, start_offset)
        self.check(topic_id)
        self.map_slots(self.head.capacity)
        self.closed = False
        if memcmp(self.head.boot_id, <const char*>boot_id, 16) != 0:
            self.begin_boot(boot_id)
        self.enter()
        try:
            self.claim_owner()
        finally:
            self.leave()

    def __dealloc__(self):
        self.unmap_all()
        if self.fd >= 0:
            c_close(self.fd)

    # -- the file

    cdef int reserve(self, int64_t capacity) except -1:
        """Reserve disk space for the slots: a store into a hole would kill the process if the disk
        is full.
        """
        cdef int error = kstore_take_space(self.fd, PAGE_BYTES + capacity * sizeof(kstore_slot))
        if error:
            raise OSError(error, os.strerror(error))
        return 0

    cdef void* map_part(self, int64_t position, int64_t size_bytes) except NULL:
        cdef void* found = mmap(
            NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, position)
        if found == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))
        return found

    cdef int map_slots(self, int64_t capacity) except -1:
        """Map the slots again. The header stays where it is: a mutex must not move while it is
        held.
        """
        cdef void* found = self.map_part(PAGE_BYTES, capacity * sizeof(kstore_slot))
        self.unmap_slots()
        self.slots = <kstore_slot*>found
        self.capacity = capacity
        return 0

    cdef int unmap_slots(self) noexcept:
        if self.slots != NULL:
            munmap(self.slots, self.capacity * sizeof(kstore_slot))
            self.slots = NULL
        return 0

    cdef int unmap_all(self) noexcept:
        self.unmap_slots()
        if self.head != NULL:
            munmap(self.head, PAGE_BYTES)
            self.head = NULL
        return 0

    cdef kstore_leases* opened(self) except NULL:
        """The header. Raises ValueError if the queue is closed."""
        if self.closed:
            raise ValueError("the queue is closed")
        return self.head

    cdef int begin(self, bytes topic_id, int64_t start_offset) except -1:
        cdef kstore_leases* head = self.head
        head.capacity = FIRST_CAPACITY
        head.floor = head.head = start_offset
        head.next_lease_end_ms = head.next_retry_ms = INT64_MAX
        head.slot_bytes = sizeof(kstore_slot)
        memcpy(head.topic_id, <const char*>topic_id, 16)
        memcpy(head.magic, <const char*>MAGIC, 8)
        head.version = VERSION
        return 0

    cdef int check(self, bytes topic_id) except -1:
        cdef kstore_leases* head = self.head
        cdef int64_t size_bytes = os.fstat(self.fd).st_size
        if memcmp(head.magic, <const char*>MAGIC, 8) != 0:
            raise LeaseFileError("it does not begin like the state of a queue")
        if head.version != VERSION or head.slot_bytes != sizeof(kstore_slot):
            raise LeaseFileError(f"it has version {head.version}, and this kstore reads version 1")
        if memcmp(head.topic_id, <const char*>topic_id, 16) != 0:
            raise LeaseFileError("it belongs to another log of this name")
        if not (
            FIRST_CAPACITY <= head.capacity <= LARGEST_CAPACITY
            and head.capacity & (head.capacity - 1) == 0
            and size_bytes >= PAGE_BYTES + head.capacity * <int64_t>sizeof(kstore_slot)
            and 0 <= head.floor <= head.head <= head.floor + head.capacity
        ):
            raise LeaseFileError("its numbers contradict each other")
        return 0

    cdef int begin_boot(self, bytes boot_id) except -1:
        """The machine was started again: end all leases and locks from before."""
        cdef int error = kstore_shared_mutex_init(&self.head.mutex)
        if error:
            raise OSError(error, os.strerror(error))
        memset(self.head.owners, 0, sizeof(self.head.owners))
        self.free_leases(-1)
        self.recount()
        memcpy(self.head.boot_id, <const char*>boot_id, 16)
        return 0

    cdef int grow(self, int64_t wanted) except -1:
        """Double the slots at least once. The file's other users see it when they enter."""
        cdef int64_t before = self.capacity, after = before, at
        cdef kstore_slot* target
        while after < wanted:
            after *= 2
        self.reserve(after)
        self.map_slots(after)
        for at in range(self.head.floor, self.head.head):
            if at & (after - 1) != at & (before - 1):
                target = &self.slots[at & (after - 1)]
                target[0] = self.slots[at & (before - 1)]
        self.head.capacity = after
        return 0

    # -- one at a time

    cdef int enter(self) except -1:
        cdef int inherited = 0, error
        self.opened()
        error = kstore_shared_mutex_try(&self.head.mutex, &inherited)
        if error == EBUSY:
            with nogil:
                error = kstore_shared_mutex_lock(&self.head.mutex, self.lock_ms, &inherited)
            if error == ETIMEDOUT:
                raise TimeoutError(
                    f"another process has held the queue's state for {self.lock_ms / 1000.0:g} s: "
                    "look for one that is stopped, and continue or kill it")
        if error:
            raise OSError(error, os.strerror(error))
        if self.capacity != self.head.capacity:
            try:
                self.map_slots(self.head.capacity)
            except BaseException:
                self.leave()
                raise
        if inherited:               # the last holder was killed while it held the lock
            self.recount()
        return 0

    cdef int leave(self) except -1:
        cdef bint wakes = self.gave_back and self.head.watched
        cdef uint32_t count
        self.gave_back = False
        if wakes:
            self.head.watched = 0
            self.head.wake_ups += 1
            count = self.head.wake_ups
        pthread_mutex_unlock(&self.head.mutex)
        if wakes:
            # Waiting workers of any process watch the directory. A store into the map is no event,
            # so write. If that fails, they look by themselves a little later.
            pwrite(self.fd, &count, sizeof(count), KSTORE_WAKE_UPS_AT)
        return 0

    def watch(self):
        """From now on, workers that give a message back wake the waiting workers. Look at the table
        after this call.
        """
        self.enter()
        self.head.watched = 1
        self.leave()

    @property
    def watched(self):
        """Whether a worker waits for a message."""
        return bool(self.opened().watched)

    @property
    def wake_ups(self):
        """How often waiting workers were woken."""
        return self.opened().wake_ups

    # -- owners

    cdef int claim_owner(self) except -1:
        cdef int owner
        for owner in range(KSTORE_OWNERS):
            if kstore_owner_lock(self.fd, owner, 1) == 0:
                if self.head.owners[owner]:         # its last owner was killed
                    self.free_leases(owner)
                self.head.owners[owner] = getpid()
                self.owner = owner
                return 0
        raise LeaseFileError(f"{KSTORE_OWNERS} users have the queue open already")

    cdef int free_leases(self, int owner) noexcept:
        """The leased messages of an owner (-1: of all) can be taken again at once."""
        cdef int64_t at
        cdef kstore_slot* slot
        for at in range(self.head.floor, self.head.head):
            slot = &self.slots[at & (self.capacity - 1)]
            if state_of(slot.word, at) == LEASED and (owner < 0 or owner_of(slot.word) == owner):
                slot.due_ms = 0
                slot.word = word_of(WAITING, 0, deliveries_of(slot.word), at)
                self.head.leased -= 1
                self.head.waiting += 1
                self.head.next_retry_ms = 0
                self.gave_back = True
        return 0

    def free_dead_owners(self):
        """Free the messages leased by owners whose process has ended; returns whether there were
        any.
        """
        cdef int owner
        cdef bint found = False
        self.enter()
        try:
            if self.head.leased == 0:
                return False
            for owner in range(KSTORE_OWNERS):
                if owner == self.owner or self.head.owners[owner] == 0:
                    continue
                if kstore_owner_lock(self.fd, owner, 0) == 0:
                    self.free_leases(owner)
                    self.head.owners[owner] = 0
                    found = True
        finally:
            self.leave()
        return found

    def close(self):
        """Give back all leased messages and close the file."""
        if self.closed:
            return
        self.enter()
        try:
            self.free_leases(self.owner)
            self.head.owners[self.owner] = 0
            kstore_owner_lock(self.fd, self.owner, -1)
        finally:
            self.leave()
        self.closed = True          # keep the map: another thread may be waiting for the mutex
        c_close(self.fd)
        self.fd = -1

    def abandon(self):
        """Close the file without a change, in a child process: the table belongs to the parent, and
        a map would keep the parent's lock.
        """
        self.closed = True
        if self.fd >= 0:
            c_close(self.fd)
        self.fd = -1
        self.unmap_all()


    # -- the numbers

    cdef int recount(self) noexcept:
        """Count again from the slots."""
        cdef kstore_leases* head = self.head
        cdef kstore_slot* slot
        cdef int64_t at
        cdef int state
        head.leased = head.waiting = 0
        head.next_lease_end_ms = head.next_retry_ms = INT64_MAX
        for at in range(head.floor, head.head):
            slot = &self.slots[at & (self.capacity - 1)]
            state = state_of(slot.word, at)
            if state == UNKNOWN:
                slot.due_ms = 0
                slot.word = word_of(WAITING, 0, 0, at)
                state = WAITING
            if state == LEASED:
                head.leased += 1
                head.next_lease_end_ms = min(head.next_lease_end_ms, slot.due_ms)
            elif state == WAITING:
                head.waiting += 1
                head.next_retry_ms = min(head.next_retry_ms, slot.due_ms)
        self.raise_floor()
        return 0

    cdef int raise_floor(self) noexcept:
        cdef kstore_leases* head = self.head
        while head.floor < head.head and state_of(
            self.slots[head.floor & (self.capacity - 1)].word, head.floor
        ) == DONE:
            head.floor += 1
        return 0

    cdef int cut(self, int64_t end_offset) noexcept:
        """The log was truncated here: offsets from here on will be other messages."""
        if end_offset < self.head.head:
            self.head.cuts += 1
            self.head.head = end_offset
            self.head.floor = min(self.head.floor, end_offset)
            self.recount()
        return 0
