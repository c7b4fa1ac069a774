# Where the last readers of a log stopped. Readers that continue there need no index.

from libc.stdint cimport int64_t

cdef enum:
    HINTS = 8
    SENT_UNKNOWN = -1

# Where a reader stopped: the position of its next offset in the segment.
cdef struct Hint:
    int64_t offset
    int64_t segment_base
    int64_t position
    int sent                        # how often the data from here was sent

cdef struct ReadHints:
    Hint[8] hints
    int next                        # the next one to overwrite


cdef inline Hint* find_hint(ReadHints* known, int64_t offset) noexcept nogil:
    cdef int i
    for i in range(HINTS):
        if known.hints[i].offset == offset:
            return &known.hints[i]
    return NULL


cdef inline void forget_all(ReadHints* known) noexcept nogil:
    cdef int i
    for i in range(HINTS):
        known.hints[i].offset = -1


cdef inline void remember(
    ReadHints* known, int64_t offset, int64_t segment_base, int64_t position
) noexcept nogil:
    cdef Hint* hint = find_hint(known, offset)
    if hint == NULL:
        hint = &known.hints[known.next]
        known.next = (known.next + 1) % HINTS
        hint.offset = offset
        hint.sent = 0
    hint.segment_base = segment_base
    hint.position = position


# How often the data from an offset was sent before, as far as known. Readers that continue where
# one stopped start at a hint. SENT_UNKNOWN: there is no hint.
cdef inline int times_sent(ReadHints* known, int64_t offset) noexcept nogil:
    cdef Hint* hint = find_hint(known, offset)
    if hint == NULL:
        return SENT_UNKNOWN
    hint.sent += 1
    return hint.sent - 1
