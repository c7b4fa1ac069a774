# Cuts a byte stream into Kafka's frames: a 32-bit length, then that many bytes. It decodes nothing.
# A frame's buffer grows (doubling) only as its bytes arrive: a wrong length costs nothing.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kstore._fast.record.buffer cimport load_int32

from kstore.errors import ProtocolError


cdef int32_t checked_size(int32_t size, int32_t limit) except -1:
    if size < 0:
        raise ProtocolError(
            f"a frame announces {size} bytes: negative, so this is not Kafka's protocol")
    if size > limit:
        raise ProtocolError(f"a frame announces {size} bytes, more than the limit of {limit}")
    return size


def frame_size(object data, int32_t max_frame_bytes, Py_ssize_t offset=0):
    """The size of the frame whose length prefix is at offset, or -1: too few bytes."""
    cdef Py_buffer view
    cdef int32_t size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if offset < 0 or view.len - offset < 4:
            return -1
        size = load_int32(<const uint8_t*>view.buf + offset)
    finally:
        PyBuffer_Release(&view)
    return checked_size(size, max_frame_bytes)


cdef class FrameSplitter:
    """Holds the bytes of an incomplete frame, never more than the limit of one frame."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef int32_t max_frame_bytes
    cdef object failure

    def __init__(self, int32_t max_frame_bytes=104857600):
        self.max_frame_bytes = max_frame_bytes

    def __dealloc__(self):
        free(self.data)

    @property
    def buffered_bytes(self):
        """Bytes held of an incomplete frame."""
        return self.size

    def feed(self, object data):
        """Add bytes; return the frames that are now complete, without their length prefix."""
        cdef Py_buffer view
        cdef list frames = []
        if self.failure is not None:
            raise ProtocolError(self.failure)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.consume(<const uint8_t*>view.buf, view.len, frames)
        except ProtocolError as error:
            self.failure = str(error)
            raise
        finally:
            PyBuffer_Release(&view)
        return frames

    cdef int consume(self, const uint8_t* p, Py_ssize_t left, list frames) except -1:
        cdef Py_ssize_t part
        cdef Py_ssize_t wanted
        while left > 0:
            if self.size == 0 and left >= 4:
                wanted = 4 + checked_size(load_int32(p), self.max_frame_bytes)
                if left >= wanted:
                    frames.append(PyBytes_FromStringAndSize(<char*>p + 4, wanted - 4))
                    p += wanted
                    left -= wanted
                    continue
            wanted = 4
            if self.size >= 4:
                wanted += checked_size(load_int32(self.data), self.max_frame_bytes)
            part = min(left, wanted - self.size)
            self.hold(p, part)
            p += part
            left -= part
            if self.size >= 4:
                wanted = 4 + checked_size(load_int32(self.data), self.max_frame_bytes)
                if self.size == wanted:
                    frames.append(PyBytes_FromStringAndSize(<char*>self.data + 4, wanted - 4))
                    self.release()
        return 0

    cdef int hold(self, const uint8_t* p, Py_ssize_t part) except -1:
        cdef uint8_t* data
        cdef Py_ssize_t capacity
        if self.size + part > self.capacity:
            capacity = max(self.size + part, 2 * self.capacity)
            data = <uint8_t*>realloc(self.data, capacity)
            if data == NULL:
                raise MemoryError()
            self.data = data
            self.capacity = capacity
        memcpy(self.data + self.size, p, part)
        self.size += part
        return 0

    cdef void release(self) noexcept:
        self.size = 0
        if self.capacity > 65536:
            free(self.data)
            self.data = NULL
            self.capacity = 0
