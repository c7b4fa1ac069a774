# The leader-epoch cache of one log: the start offset of each epoch, ascending in both. It finds the
# end of an epoch (KIP-101, KIP-279). It has no file; kstore.log stores its entries.

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memmove

cdef enum:
    UNDEFINED_EPOCH = -1
    UNDEFINED_OFFSET = -1


cdef class EpochCache:
    def __cinit__(self):
        self.latest_epoch = UNDEFINED_EPOCH

    def __init__(self, entries=()):
        for epoch, start_offset in entries:
            self.assign_epoch(epoch, start_offset)

    def __dealloc__(self):
        PyMem_Free(self.entries)

    def __len__(self):
        return self.count

    cdef int _note_latest(self) noexcept:
        self.latest_epoch = self.entries[self.count - 1].epoch if self.count else UNDEFINED_EPOCH
        return 0

    cdef bint assign(self, int32_t epoch, int64_t start_offset) except -1:
        cdef EpochEntry* moved
        if self.count and self.entries[self.count - 1].epoch == epoch \
                and self.entries[self.count - 1].start_offset <= start_offset:
            return False
        while self.count and (self.entries[self.count - 1].epoch >= epoch
                              or self.entries[self.count - 1].start_offset >= start_offset):
            self.count -= 1
        if self.count == self.room:
            moved = <EpochEntry*>PyMem_Realloc(
                self.entries, (self.room * 2 + 4) * sizeof(EpochEntry))
            if moved == NULL:
                raise MemoryError
            self.entries = moved
            self.room = self.room * 2 + 4
        self.entries[self.count].epoch = epoch
        self.entries[self.count].start_offset = start_offset
        self.count += 1
        self.latest_epoch = epoch
        return True

    # Index of the last entry whose epoch is not above the given one, or -1.
    cdef int find(self, int32_t epoch) noexcept:
        cdef int low = 0
        cdef int high = self.count
        cdef int middle
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].epoch <= epoch:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def assign_epoch(self, int32_t epoch, int64_t start_offset):
        if epoch < 0 or start_offset < 0:
            raise ValueError(
                f"leader epoch {epoch} from offset {start_offset}: neither may be negative")
        return bool(self.assign(epoch, start_offset))

    def end_offset_for(self, int32_t epoch, int64_t log_end_offset):
        cdef int at
        if epoch == UNDEFINED_EPOCH or self.count == 0:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        at = self.find(epoch)
        if at == self.count - 1:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET    # above every epoch that this log has seen
        if at < 0:
            return epoch, self.entries[0].start_offset
        return self.entries[at].epoch, self.entries[at + 1].start_offset

    def epoch_for_offset(self, int64_t offset):
        cdef int at = self.count - 1
        while at >= 0 and self.entries[at].start_offset > offset:
            at -= 1
        return self.entries[at].epoch if at >= 0 else None

    def truncate_from_end(self, int64_t end_offset):
        while self.count and self.entries[self.count - 1].start_offset >= end_offset:
            self.count -= 1
        self._note_latest()

    def truncate_from_start(self, int64_t start_offset):
        cdef int gone = 0
        while gone + 1 < self.count and self.entries[gone + 1].start_offset <= start_offset:
            gone += 1
        if gone:
            memmove(self.entries, self.entries + gone, (self.count - gone) * sizeof(EpochEntry))
            self.count -= gone
        if self.count and self.entries[0].start_offset < start_offset:
            self.entries[0].start_offset = start_offset

    def clear(self):
        self.count = 0
        self._note_latest()

    def as_list(self):
        cdef int i
        return [(self.entries[i].epoch, self.entries[i].start_offset) for i in range(self.count)]

    def __repr__(self):
        return f"EpochCache({self.as_list()})"
