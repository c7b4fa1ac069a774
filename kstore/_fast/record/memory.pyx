"""A borrowed view of an object's bytes, for functions that take any buffer. It copies nothing
and parses nothing.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


cdef class MemoryView:
    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef MemoryView view_of(object source, bint writable=False):
    cdef MemoryView view = MemoryView.__new__(MemoryView)
    PyObject_GetBuffer(source, &view.buffer, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
    view.held = True
    view.source = source
    view.size = view.buffer.len
    view.data = <uint8_t*>view.buffer.buf if view.size else NULL
    return view
