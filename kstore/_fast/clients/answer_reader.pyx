# The read buffer of a client's socket. Small answers share one buffer. A large answer is read into
# the bytes object that the caller gets, so its records are never copied. It decodes only lengths.

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from kstore._fast.record.buffer cimport load_int32

from kstore.errors import ProtocolError

cdef enum:
    BUFFER_BYTES = 16384


cdef class AnswerReader:
    """A writable buffer. It may be at another place after each read."""

    cdef uint8_t* data
    cdef Py_ssize_t end
    cdef bytes large
    cdef Py_ssize_t large_at
    cdef int32_t max_frame_bytes
    cdef object failure

    def __cinit__(self, int32_t max_frame_bytes=104857600):
        self.max_frame_bytes = max_frame_bytes
        self.data = <uint8_t*>malloc(BUFFER_BYTES)
        if self.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        if self.large is not None:
            return len(self.large) - self.large_at
        return BUFFER_BYTES - self.end

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.large is not None:
            PyBuffer_FillInfo(view, self, PyBytes_AS_STRING(self.large) + self.large_at,
                              len(self.large) - self.large_at, 0, flags)
        else:
            PyBuffer_FillInfo(view, self, self.data + self.end, BUFFER_BYTES - self.end, 0, flags)

    def received(self, Py_ssize_t size):
        """Take `size` bytes that were written to the buffer; the frames that are now complete."""
        cdef list frames = []
        if self.failure is not None:
            raise ProtocolError(self.failure)
        if size < 0 or size > len(self):
            raise ValueError(f"{size} bytes don't fit into the buffer")
        if self.large is None:
            self.end += size
            self.cut(frames)
            return frames
        self.large_at += size
        if self.large_at == len(self.large):
            frames.append(self.large)
            self.large = None
        return frames

    cdef int cut(self, list frames) except -1:
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t left
        cdef int32_t frame
        while self.end - at >= 4:
            frame = load_int32(self.data + at)
            if frame < 0 or frame > self.max_frame_bytes:
                self.failure = (
                    f"a frame announces {frame} bytes: 0 to {self.max_frame_bytes} are possible")
                raise ProtocolError(self.failure)
            left = self.end - at - 4
            if left >= frame:
                frames.append(PyBytes_FromStringAndSize(<char*>self.data + at + 4, frame))
                at += 4 + frame
                continue
            if 4 + frame > BUFFER_BYTES // 2:
                self.large = PyBytes_FromStringAndSize(NULL, frame)
                memcpy(PyBytes_AS_STRING(self.large), self.data + at + 4, left)
                self.large_at = left
                at = self.end
            break
        self.end -= at
        if at and self.end:
            memmove(self.data, self.data + at, self.end)
        return 0
