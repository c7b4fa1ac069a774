# Answers on their way into a socket: bytes by send, slices of segment files by sendfile, without
# copying them through this process.

from libc.stdint cimport int64_t

from kstore._fast.disk.page_reader cimport ColdRead
from kstore._fast.log.segment_file cimport SegmentFile
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef enum SendOutcome:
    SEND_DONE = 0
    SEND_BLOCKED = 1                # the socket is full, or as much as may be is sent
    SEND_LOST = 2                   # the peer is gone
    SEND_SHORT = 3                  # a file ended early: the frame that was begun can't be ended
    SEND_NO_SENDFILE = 4            # this file system or system has none: `copy_slices`, then again
    SEND_COLD = 5                   # what comes next is not in memory any more: `read_next`

# A descriptor of its own, so that nobody's close makes it another file while a socket is full.
cdef class PinnedFile:
    cdef int fd
    cdef object __weakref__

# Bytes of a file that belong between two bytes of an answer buffer.
cdef class FileSlice:
    cdef SegmentFile file
    cdef PinnedFile pinned          # None while it is sent in the turn of the loop that found it
    cdef int64_t position
    cdef int64_t size_bytes         # that are still to be sent
    cdef Py_ssize_t at              # in front of this byte of the buffer
    cdef int64_t read_end           # up to here it was waited for once

# Whether the answer may hold the slice instead of its bytes; then it does.
cdef bint add_slice(
    AnswerBuffer out, SegmentFile file, int64_t position, int64_t size_bytes) except? False
# Sends what the socket takes, at most so many bytes, and remembers how far it came. The GIL stays,
# so that no file is closed meanwhile.
cdef int send_answers(int fd, AnswerBuffer out, int64_t most) except -1
cdef int64_t unsent(AnswerBuffer out) noexcept
# Has what comes next read in, and tell() called on the loop then. None: it can't be, and is sent as
# it is.
cdef ColdRead read_next(AnswerBuffer out, object tell)
# Keeps the files of what is unsent from being closed; pins: SegmentFile -> PinnedFile, weak. False:
# there is no descriptor left.
cdef bint pin_files(AnswerBuffer out, object pins) except? False
# The unsent part with the files' bytes in it; None where a file ended early.
cdef AnswerBuffer copy_slices(AnswerBuffer out)
