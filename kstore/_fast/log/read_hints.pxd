# Where the last readers of a log left off: readers that go on from there need no index.

from libc.stdint cimport int64_t

cdef enum:
    HINTS = 8
    SENT_UNKNOWN = -1

# Where a reader left off: its next offset lies at this position of that segment.
cdef struct Hint:
    int64_t offset
    int64_t segment_base
    int64_t position
    int sent                        # how often what follows was sent

cdef struct ReadHints:
    Hint[8] hints
    int next                        # the one that is overwritten next


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


# How often what follows an offset was sent before, as far as that is remembered: readers that go on
# where they left off begin at a hint. SENT_UNKNOWN: they begin somewhere else.
cdef inline int times_sent(ReadHints* known, int64_t offset) noexcept nogil:
    cdef Hint* hint = find_hint(known, offset)
    if hint == NULL:
        return SENT_UNKNOWN
    hint.sent += 1
    return hint.sent - 1
