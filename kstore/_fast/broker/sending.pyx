"""Sends answers: bytes by send, slices of segment files by sendfile.

It knows no connection and no frame. A slice has a fixed size: if the file has become shorter, the
caller must end the connection, because the frame's size has been sent.
"""

from libc.stdint cimport uint64_t

from libc.errno cimport EAGAIN, EINTR, EINVAL, ENOSYS, EOPNOTSUPP, errno

from kstore._fast.disk.page_reader cimport PageReader
from kstore._fast.protocol.wire cimport put_raw, room

import os

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef extern from * nogil:
    """
    #include <errno.h>
    #ifdef __linux__
    # include <sys/sendfile.h>
    static ssize_t kstore_sendfile(int to, int from, int64_t* position, size_t size) {
        off_t at = (off_t)*position;
        ssize_t n = sendfile(to, from, &at, size);
        if (n > 0) *position = at;
        return n;
    }
    #else
    # define MSG_MORE 0
    static ssize_t kstore_sendfile(int to, int from, int64_t* position, size_t size) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    int MSG_MORE
    ssize_t kstore_sendfile(int to_fd, int from_fd, int64_t* position, size_t size)

# Measured, CPU of the broker for one slice on loopback, copied and by sendfile: 32 KB 33 and 43 us,
# 128 KB 41 and 47, 256 KB 57 and 90, 1 MB 600 and 210 (such a copy no longer fits in the cache).
cdef enum:
    SENDFILE_BYTES = 256 * 1024             # smaller slices are copied
    CROWDED_BYTES = 512 * 1024              # a buffer with this much accepts smaller ones too
    CROWDED_SENDFILE_BYTES = 32 * 1024
    MAX_SLICES = 64                         # per buffer
    LOOK_BYTES = 1024 * 1024                # of a file are checked, and read, at once
    LEAST_LOOK_BYTES = 128 * 1024           # if not all of that is in memory


cdef class PinnedFile:
    """A duplicate descriptor of a file that is being sent."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            os.close(self.fd)


cdef class FileSlice:
    """Bytes of a file that belong between two bytes of a response buffer."""


cdef bint add_slice(
    AnswerBuffer out, SegmentFile file, int64_t position, int64_t size_bytes
) except? False:
    cdef FileSlice piece
    cdef bint crowded = out.size >= CROWDED_BYTES
    if size_bytes < (CROWDED_SENDFILE_BYTES if crowded else SENDFILE_BYTES):
        return False
    if not out.takes_slices or not file.plain or file.fd < 0:
        return False
    if out.slices is None:
        out.slices = []
    elif len(out.slices) >= MAX_SLICES:
        return False
    piece = FileSlice.__new__(FileSlice)
    piece.file = file
    piece.position = position
    piece.size_bytes = size_bytes
    piece.at = out.size
    out.slices.append(piece)
    out.slice_bytes += size_bytes
    return True


cdef int64_t unsent(AnswerBuffer out) noexcept:
    return out.size - out.sent + out.slice_bytes


cdef int send_answers(int fd, AnswerBuffer out, int64_t most) except -1:
    cdef FileSlice piece = None
    cdef Py_ssize_t stop
    cdef ssize_t n
    cdef int64_t size
    while True:
        piece = <FileSlice>out.slices[0] if out.slices else None
        stop = out.size if piece is None else piece.at
        if out.sent == stop and piece is None:
            return SEND_DONE
        if most <= 0:
            return SEND_BLOCKED
        if out.sent < stop:
            n = send(fd, out.data + out.sent, <size_t>min(<int64_t>(stop - out.sent), most),
                     MSG_DONTWAIT | MSG_NOSIGNAL | (0 if piece is None else MSG_MORE))
            if n > 0:
                out.sent += n
        else:
            size = in_memory(piece, min(piece.size_bytes, most))
            if size == 0:
                return SEND_COLD
            n = kstore_sendfile(
                fd, piece.file.fd if piece.pinned is None else piece.pinned.fd, &piece.position,
                <size_t>size)
            if n == 0:
                return SEND_SHORT
            if n > 0:
                piece.size_bytes -= n
                out.slice_bytes -= n
                if piece.size_bytes == 0:
                    out.slices.pop(0)
            elif errno == EINVAL or errno == ENOSYS or errno == EOPNOTSUPP:
                return SEND_NO_SENDFILE
        if n > 0:
            most -= n
        elif n < 0 and errno != EINTR:
            return SEND_BLOCKED if errno == EAGAIN else SEND_LOST


# How much of the next data can be sent without waiting for a disk. In the turn that found it, this
# was already checked.
cdef int64_t in_memory(FileSlice piece, int64_t size) except -1:
    cdef PageReader pages = piece.file.pages
    if piece.pinned is None or pages is None or not pages.serving:
        return size
    if piece.position < piece.read_end:
        return min(size, piece.read_end - piece.position)
    size = min(size, <int64_t>LOOK_BYTES)
    if pages.has(piece.pinned.fd, piece.position, size):
        return size
    size = min(size, <int64_t>LEAST_LOOK_BYTES)
    return size if pages.has(piece.pinned.fd, piece.position, size) else 0


cdef ColdRead read_next(AnswerBuffer out, object tell):
    cdef FileSlice piece = <FileSlice>out.slices[0]
    cdef int64_t size = min(piece.size_bytes, <int64_t>LOOK_BYTES)
    piece.read_end = piece.position + size
    return (<PageReader>piece.file.pages).read(
        <uint64_t><void*>piece.file, piece.pinned.fd, piece.position, size,
        piece.position + piece.size_bytes, tell)


cdef bint pin_files(AnswerBuffer out, object pins) except? False:
    cdef FileSlice piece
    cdef PinnedFile pinned
    for piece in out.slices or ():
        if piece.pinned is not None:
            continue
        pinned = pins.get(piece.file)
        if pinned is None:
            pinned = PinnedFile.__new__(PinnedFile)
            try:
                pinned.fd = os.dup(piece.file.fd)
            except OSError:
                return False
            pins[piece.file] = pinned
        piece.pinned = pinned
    return True


cdef AnswerBuffer copy_slices(AnswerBuffer out):
    cdef AnswerBuffer copy = AnswerBuffer(max(unsent(out), 64))
    cdef Py_ssize_t at = out.sent
    cdef FileSlice piece
    for piece in out.slices or ():
        put_raw(copy, out.data + at, piece.at - at)
        at = piece.at
        room(copy, piece.size_bytes)
        if piece.file.read_into(copy.data + copy.size, piece.size_bytes, piece.position) \
                != piece.size_bytes:
            return None
        copy.size += piece.size_bytes
    put_raw(copy, out.data + at, out.size - at)
    return copy
