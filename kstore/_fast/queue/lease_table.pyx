"""The messages of a log that are leased, done or waiting for another try, as one user sees them."""

from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport close as c_close

import os

from kstore._fast.queue.lease_file cimport (
    DONE, LARGEST_CAPACITY, LEASED, UNKNOWN, WAITING, LeaseFile, deliveries_of, kstore_leases,
    kstore_slot, state_of, word_of,
)
from kstore._fast.record.crc32c cimport crc32c

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t offset)
    ssize_t pread(int fd, void* into, size_t size, int64_t offset)

cdef enum:
    REASON_BYTES = 96

cdef struct DeadEntry:
    int64_t offset
    int64_t died_ms
    uint32_t deliveries
    uint32_t reason_bytes
    char reason[REASON_BYTES]
    uint32_t unused
    uint32_t checksum               # CRC-32C of the fields before it


cdef class LeaseTable(LeaseFile):
    """One queue's state, opened by one owner. Threads and processes may use it at the same time.

    ``fd`` is the open file, which the table owns from now on. The caller holds its lock during this
    call. Times are in ms: ``now_ms`` of a clock that never decreases and is the same in all
    processes, ``wall_ms`` the time of day. Raises LeaseFileError and OSError.
    """
    cdef int dead_fd
    cdef int64_t* ahead
    cdef int64_t ahead_count
    cdef int64_t ahead_at
    cdef int64_t ahead_end
    cdef int64_t ahead_cuts

    def __cinit__(self):
        self.dead_fd = -1

    def __dealloc__(self):
        if self.dead_fd >= 0:
            c_close(self.dead_fd)
        free(self.ahead)

    def abandon(self):
        """Close the files without a change, in a child process: the table belongs to the parent."""
        LeaseFile.abandon(self)
        if self.dead_fd >= 0:
            c_close(self.dead_fd)
        self.dead_fd = -1

    @property
    def floor(self):
        """All messages before this offset are done."""
        return self.opened().floor

    @property
    def next_offset(self):
        """No message from this offset on was ever taken."""
        return self.opened().head

    @property
    def next_lease_end_ms(self):
        """No lease ends before this time."""
        return self.opened().next_lease_end_ms

    @property
    def next_retry_ms(self):
        """No message that was given back can be taken before this time."""
        return self.opened().next_retry_ms

    def counts(self):
        """(leased, waiting for another try, dead, acked, expired leases, lost): numbers of
        messages. The first three are current, the others totals.
        """
        cdef kstore_leases* head = self.opened()
        return head.leased, head.waiting, head.dead, head.acked, head.expired, head.lost

    # -- take

    @property
    def cuts(self):
        """How often the log was truncated."""
        return self.opened().cuts

    def look_ahead(self, int64_t from_offset, offsets, int64_t end_offset, int64_t cuts):
        """Set the log's messages from an offset on, which was ``next_offset``: ``offsets``
        (ascending) and the end of what was read. ``cuts``: its value before they were read.
        """
        cdef int64_t count = len(offsets), at, least
        cdef int64_t* ahead = <int64_t*>malloc(max(1, count) * sizeof(int64_t))
        if ahead == NULL:
            raise MemoryError
        try:
            for at in range(count):
                ahead[at] = offsets[at]
                least = ahead[at - 1] + 1 if at else from_offset
                if not least <= ahead[at] < end_offset:
                    raise ValueError("offsets are not ascending between from_offset and end_offset")
        except BaseException:
            free(ahead)
            raise
        free(self.ahead)
        self.ahead = ahead
        self.ahead_count, self.ahead_at, self.ahead_end = count, 0, end_offset
        self.ahead_cuts = cuts

    def take_new(self, int64_t limit, int64_t lease_end_ms):
        """Lease the next messages of `look_ahead`: (index of the first, count)."""
        cdef int64_t first, offset
        self.enter()
        try:
            if self.ahead_cuts != self.head.cuts:
                self.ahead_at = self.ahead_count = self.ahead_end = 0
            while self.ahead_at < self.ahead_count and self.ahead[self.ahead_at] < self.head.head:
                self.ahead_at += 1
            first = self.ahead_at
            while self.ahead_at < self.ahead_count and self.ahead_at - first < limit:
                offset = self.ahead[self.ahead_at]
                if not self.pass_gap(offset) or not self.has_room(offset):
                    break
                self.put(offset, LEASED, self.owner, 1, lease_end_ms)
                self.head.leased += 1
                if lease_end_ms < self.head.next_lease_end_ms:
                    self.head.next_lease_end_ms = lease_end_ms
                self.head.head = offset + 1
                self.ahead_at += 1
            if self.ahead_at == self.ahead_count and self.head.head < self.ahead_end:
                self.pass_gap(self.ahead_end)
        finally:
            self.leave()
        return first, self.ahead_at - first

    cdef inline void put(
        self, int64_t offset, int state, int owner, int deliveries, int64_t due_ms
    ) noexcept:
        cdef kstore_slot* slot = &self.slots[offset & (self.capacity - 1)]
        slot.due_ms = due_ms
        slot.word = word_of(state, owner, deliveries, offset)

    cdef bint has_room(self, int64_t offset) except -1:
        """Whether an offset has a slot. If not, a message before it must be done first."""
        cdef int64_t wanted = offset + 1 - self.head.floor
        if wanted <= self.capacity:
            return True
        if wanted > LARGEST_CAPACITY:
            return False
        self.grow(wanted)
        return True

    cdef bint pass_gap(self, int64_t offset) except -1:
        """Move the head to an offset; there are no messages in between."""
        cdef int64_t at
        if self.head.head >= offset:
            return True
        if self.head.floor == self.head.head:
            self.head.head = offset         # after a kill here, the slots do not have these offsets
            self.head.floor = offset
            return True
        if not self.has_room(offset - 1):
            return False
        for at in range(self.head.head, offset):
            self.put(at, DONE, 0, 0, 0)
        self.head.head = offset
        return True

    def take_again(
        self, int64_t limit, int64_t now_ms, int64_t wall_ms, int64_t lease_end_ms,
        int max_deliveries,
    ):
        """Lease messages whose lease has expired or that were given back: a list of (offset,
        deliveries). A message without tries left becomes a dead letter. None: call ``open_dead``
        first.
        """
        cdef int64_t at, soonest_lease = INT64_MAX, soonest_retry = INT64_MAX
        cdef kstore_slot* slot
        cdef int state, deliveries
        cdef list taken = []
        cdef kstore_leases* head = self.opened()
        if now_ms < head.next_lease_end_ms and wall_ms < head.next_retry_ms:
            return taken
        self.enter()
        try:
            at = self.head.floor
            while at < self.head.head and len(taken) < limit:
                slot = &self.slots[at & (self.capacity - 1)]
                state = state_of(slot.word, at)
                if state == LEASED and slot.due_ms > now_ms:
                    soonest_lease = min(soonest_lease, slot.due_ms)
                elif state == WAITING and slot.due_ms > wall_ms:
                    soonest_retry = min(soonest_retry, slot.due_ms)
                elif state != DONE:
                    deliveries = 0 if state == UNKNOWN else deliveries_of(slot.word)
                    if deliveries >= max_deliveries:
                        if self.dead_fd < 0:
                            return None
                        self.bury(at, deliveries, wall_ms, b"its lease ended" if state == LEASED
                                  else b"its worker ended or gave it back")
                    else:
                        self.count_out(state)
                        if state == LEASED:
                            self.head.expired += 1
                        self.put(at, LEASED, self.owner, deliveries + 1, lease_end_ms)
                        self.head.leased += 1
                        soonest_lease = min(soonest_lease, lease_end_ms)
                        taken.append((at, deliveries + 1))
                at += 1
            if at >= self.head.head:        # all were checked
                self.head.next_lease_end_ms = soonest_lease
                self.head.next_retry_ms = soonest_retry
            self.raise_floor()
        finally:
            self.leave()
        return taken

    cdef inline void count_out(self, int state) noexcept:
        if state == LEASED:
            self.head.leased -= 1
        elif state == WAITING:
            self.head.waiting -= 1

    # -- settle

    cdef kstore_slot* mine(self, int64_t offset, int deliveries) noexcept:
        """The slot of a message that this owner leases, by this delivery; NULL: it does not."""
        cdef kstore_slot* slot
        if not self.head.floor <= offset < self.head.head:
            return NULL
        slot = &self.slots[offset & (self.capacity - 1)]
        return slot if slot.word == word_of(LEASED, self.owner, deliveries, offset) else NULL

    def ack(self, int64_t offset, int deliveries):
        """A message is done. False: its lease was lost."""
        self.enter()
        try:
            if self.mine(offset, deliveries) == NULL:
                return False
            self.put(offset, DONE, 0, 0, 0)
            self.head.leased -= 1
            self.head.acked += 1
            if offset == self.head.floor:
                self.raise_floor()
            return True
        finally:
            self.leave()

    def nack(
        self, int64_t offset, int deliveries, int64_t wall_ms, int64_t retry_ms, int max_deliveries,
        bytes reason,
    ):
        """Give a message back, to be taken again from ``retry_ms`` (time of day) on. After its last
        try (0 tries: now) it becomes a dead letter. False: its lease was lost. None: call
        ``open_dead`` first.
        """
        cdef kstore_slot* slot
        self.enter()
        try:
            slot = self.mine(offset, deliveries)
            if slot == NULL:
                return False
            if deliveries >= max_deliveries:
                if self.dead_fd < 0:
                    return None
                self.bury(offset, deliveries, wall_ms, reason)
                self.raise_floor()
                return True
            self.put(offset, WAITING, 0, deliveries, retry_ms)
            self.head.leased -= 1
            self.head.waiting += 1
            self.head.next_retry_ms = min(self.head.next_retry_ms, retry_ms)
            self.gave_back = True
            return True
        finally:
            self.leave()

    def extend(self, int64_t offset, int deliveries, int64_t lease_end_ms):
        """Extend a lease until this time. False: it was lost."""
        cdef kstore_slot* slot
        self.enter()
        try:
            slot = self.mine(offset, deliveries)
            if slot == NULL:
                return False
            slot.due_ms = lease_end_ms
            self.head.next_lease_end_ms = min(self.head.next_lease_end_ms, lease_end_ms)
            return True
        finally:
            self.leave()

    def drop_before(self, int64_t offset):
        """The log begins here: earlier messages can't be delivered. Returns how many were lost."""
        cdef int64_t at, lost = 0
        self.enter()
        try:
            for at in range(self.head.floor, min(offset, self.head.head)):
                if state_of(self.slots[at & (self.capacity - 1)].word, at) != DONE:
                    lost += 1
            self.head.head = max(self.head.head, offset)
            self.head.floor = max(self.head.floor, offset)
            self.head.lost += lost
            self.recount()
            self.raise_floor()
        finally:
            self.leave()
        return lost

    def cut_at(self, int64_t end_offset):
        """The log was truncated here: messages taken from here on no longer exist."""
        self.enter()
        try:
            self.cut(end_offset)
        finally:
            self.leave()

    # -- dead letters

    def open_dead(self, int fd):
        """Write dead letters to this file, which the table owns from now on."""
        if self.dead_fd >= 0:
            c_close(self.dead_fd)
        self.dead_fd = fd

    cdef int bury(self, int64_t offset, int deliveries, int64_t wall_ms, bytes reason) except -1:
        """Write the dead letter first: after a kill or power loss the message is not done, and not
        lost.
        """
        cdef DeadEntry entry
        cdef kstore_slot* slot = &self.slots[offset & (self.capacity - 1)]
        cdef ssize_t size
        memset(&entry, 0, sizeof(entry))
        entry.offset, entry.died_ms, entry.deliveries = offset, wall_ms, deliveries
        entry.reason_bytes = min(len(reason), REASON_BYTES)
        memcpy(entry.reason, <const char*>reason, entry.reason_bytes)
        entry.checksum = crc32c(<unsigned char*>&entry, sizeof(entry) - 4)
        size = pwrite(self.dead_fd, &entry, sizeof(entry), self.head.dead * sizeof(entry))
        if size != sizeof(entry):
            raise OSError(errno, os.strerror(errno) if size < 0 else "a short write")
        os.fsync(self.dead_fd)              # before the slot can reach the disk
        self.count_out(state_of(slot.word, offset))
        self.put(offset, DONE, 0, 0, 0)
        self.head.dead += 1
        return 0

    def dead_letters(self):
        """(offset, deliveries, time of death in ms, reason) of each dead letter, oldest first,
        without damaged entries.
        """
        cdef DeadEntry entry
        cdef int64_t at, count = self.opened().dead
        cdef list found = []
        if self.dead_fd < 0:
            return found
        for at in range(count):
            if pread(self.dead_fd, &entry, sizeof(entry), at * sizeof(entry)) != sizeof(entry):
                break
            if entry.checksum == crc32c(<unsigned char*>&entry, sizeof(entry) - 4):
                found.append((
                    entry.offset, entry.deliveries, entry.died_ms,
                    entry.reason[:min(entry.reason_bytes, <uint32_t>REASON_BYTES)]))
        return found

    def forget_dead(self, letters):
        """Remove these dead letters, each (offset, deliveries, time of death in ms), and damaged
        ones. A kill meanwhile leaves one twice.
        """
        cdef DeadEntry entry
        cdef int64_t at, kept = 0
        cdef set gone = set(letters)
        self.enter()
        try:
            for at in range(self.head.dead if self.dead_fd >= 0 else 0):
                if pread(self.dead_fd, &entry, sizeof(entry), at * sizeof(entry)) != sizeof(entry):
                    break
                if (
                    (entry.offset, entry.deliveries, entry.died_ms) in gone
                    or entry.checksum != crc32c(<unsigned char*>&entry, sizeof(entry) - 4)
                ):
                    continue
                if kept != at and pwrite(
                    self.dead_fd, &entry, sizeof(entry), kept * sizeof(entry)
                ) != sizeof(entry):
                    raise OSError(errno, os.strerror(errno))
                kept += 1
            self.head.dead = kept
        finally:
            self.leave()
