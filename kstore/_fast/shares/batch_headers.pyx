"""The headers of complete batches in memory: their offsets and producers. It reads no records and
checks nothing: the log has checked the batches.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kstore._fast.record.memory cimport MemoryView, view_of

cdef enum:
    BATCH_OVERHEAD = 61             # bytes of a batch before its records
    CONTROL_BIT = 0x20
    TRANSACTIONAL_BIT = 0x10


cdef class BatchHeaders:
    """The headers of complete batches, one after the other."""

    def __init__(self, MemoryView view not None):
        self.view = view
        self.rewind()

    cdef int rewind(self) except -1:
        self.position = 0
        self.base = self.last = -1
        return 0

    cdef bint read(self) except -1:
        """Read the next header; False at the end."""
        cdef uint8_t* at = self.view.data + self.position
        cdef int64_t size
        if self.position + BATCH_OVERHEAD > self.view.size:
            return False
        size = 12 + int32_at(at + 8)
        if size < BATCH_OVERHEAD or self.position + size > self.view.size:
            return False
        self.base = int64_at(at)
        self.attributes = <int16_t> ((at[21] << 8) | at[22])
        self.last = self.base + int32_at(at + 23)
        self.producer_id = int64_at(at + 43)
        self.position += size
        return True

    cdef int64_t end_offset(self) except -2:
        """The last offset of all batches."""
        cdef int64_t found = self.last
        while self.read():
            found = self.last
        self.rewind()
        return found

    cdef int64_t last_of(self, int64_t offset) except -2:
        """The last offset of the batch with this offset, or of the batch before it."""
        cdef int64_t found = offset
        if self.base > offset:
            self.rewind()
        while self.last < offset:
            if not self.read():
                return offset
        if self.base <= offset:
            found = self.last
        return found

    cdef list aborted_of(self, aborted):
        """[first offset, last offset] of the batches of aborted transactions."""
        cdef int64_t producer_id, first, last
        found = []
        self.rewind()
        while self.read():
            if (self.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)) != TRANSACTIONAL_BIT:
                continue
            for producer_id, first, last in aborted:
                if producer_id == self.producer_id and first <= self.base <= last:
                    found.append((self.base, self.last))
                    break
        return found


cdef inline int32_t int32_at(uint8_t* at) noexcept:
    return <int32_t> ((<uint32_t> at[0] << 24) | (at[1] << 16) | (at[2] << 8) | at[3])


cdef inline int64_t int64_at(uint8_t* at) noexcept:
    return (<int64_t> int32_at(at) << 32) | (<int64_t> int32_at(at + 4) & 0xFFFFFFFF)



def slice_of(data, int64_t first, int64_t last):
    """(start, end) of the bytes of the complete batches in ``data`` with any of the offsets."""
    cdef BatchHeaders batches = BatchHeaders(view_of(data))
    cdef Py_ssize_t start = -1, end = 0, before = 0
    while batches.read():
        if batches.last >= first:
            if batches.base > last:
                break
            if start < 0:
                start = before
            end = batches.position
        before = batches.position
    if start < 0:
        return 0, 0
    return start, end


def count_of(data):
    """The number of offsets that complete batches span, and the last of them."""
    cdef BatchHeaders batches = BatchHeaders(view_of(data))
    cdef int64_t first = -1
    while batches.read():
        if first < 0:
            first = batches.base
    if first < 0:
        return 0, -1
    return batches.last - first + 1, batches.last
