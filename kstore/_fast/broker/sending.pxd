# Sends answers: bytes by send, slices of segment files by sendfile, without copying them through
# this process.

from libc.stdint cimport int64_t

from kstore._fast.disk.page_reader cimport ColdRead
from kstore._fast.log.segment_file cimport SegmentFile
from kstore._fast.protocol.wire cimport AnswerBuffer

cdef enum SendOutcome:
    SEND_DONE = 0
    SEND_BLOCKED = 1                # the socket is full, or the allowed bytes are sent
    SEND_LOST = 2                   # the peer is gone
    SEND_SHORT = 3                  # a file ended early: the frame can't be completed
    SEND_NO_SENDFILE = 4            # no sendfile here: `copy_slices`, then try again
    SEND_COLD = 5                   # the next data is no longer in memory: `read_next`

# A separate descriptor, so that no close can turn it into another file while a socket is full.
cdef class PinnedFile:
    cdef int fd
    cdef object __weakref__

# Bytes of a file that belong between two bytes of an answer buffer.
cdef class FileSlice:
    cdef SegmentFile file
    cdef PinnedFile pinned          # None in the turn of the loop that found it
    cdef int64_t position
    cdef int64_t size_bytes         # that are still to be sent
    cdef Py_ssize_t at              # before this byte of the buffer
    cdef int64_t read_end           # up to here the data was waited for once

# Adds the slice in place of its bytes, if possible; returns whether it did.
cdef bint add_slice(
    AnswerBuffer out, SegmentFile file, int64_t position, int64_t size_bytes) except? False
# Sends what the socket accepts, up to so many bytes, and notes the position. It keeps the GIL, so
# that no file is closed meanwhile.
cdef int send_answers(int fd, AnswerBuffer out, int64_t most) except -1
cdef int64_t unsent(AnswerBuffer out) noexcept
# Starts to read the next data, and calls tell() on the loop afterwards. None: that is impossible;
# send it anyway.
cdef ColdRead read_next(AnswerBuffer out, object tell)
# Keeps the files of unsent slices open; pins: SegmentFile -> PinnedFile, weak. False: no descriptor
# is left.
cdef bint pin_files(AnswerBuffer out, object pins) except? False
# The unsent part with the files' bytes; None if a file ended early.
cdef AnswerBuffer copy_slices(AnswerBuffer out)
