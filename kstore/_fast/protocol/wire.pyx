"""The answer buffer: growing memory that is sent to a socket, or to a transport as a buffer object.

It knows no message and no connection; wire.pxd has the readers and writers.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc, realloc
from kstore._fast.record.memory cimport MemoryView, view_of


cdef class AnswerBuffer:
    """Bytes to send; the buffer protocol exports those that the socket has not accepted yet."""

    def __cinit__(self, Py_ssize_t capacity=512):
        self.data = <uint8_t*>malloc(capacity)
        if self.data == NULL:
            raise MemoryError("no memory for an answer buffer")
        self.capacity = capacity
        self.size = 0
        self.sent = 0

    def __dealloc__(self):
        free(self.data)

    cdef int grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t capacity = self.capacity * 2
        cdef uint8_t* data
        if capacity < self.size + n:
            capacity = self.size + n
        data = <uint8_t*>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError(f"no memory for an answer of {self.size + n} bytes")
        self.data = data
        self.capacity = capacity
        return 0

    cdef int shrink(self, Py_ssize_t capacity) except -1:
        cdef uint8_t* data
        if self.capacity > capacity and self.size <= capacity:
            data = <uint8_t*>realloc(self.data, capacity)
            if data != NULL:
                self.data = data
                self.capacity = capacity
        return 0

    cdef int clear(self) except -1:
        self.size = self.sent = 0
        self.slices = None
        self.slice_bytes = self.earlier_bytes = 0
        return 0

    def write(self, data):
        """Append the bytes of a buffer object."""
        cdef MemoryView view = view_of(data)
        if view.size == 0:
            return
        room(self, view.size)
        put_raw(self, view.data, view.size)

    def __len__(self):
        return self.size - self.sent

    def __bytes__(self):
        return (<char*>self.data)[self.sent:self.size]

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data + self.sent, self.size - self.sent, 1, flags)
