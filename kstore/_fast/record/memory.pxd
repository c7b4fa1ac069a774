# An object's bytes, borrowed while this view exists. Typed memoryviews would do the same, but each
# module that uses one gets 15,000 lines of C.

from libc.stdint cimport uint8_t

cdef class MemoryView:
    cdef Py_buffer buffer
    cdef bint held
    cdef object source              # the object whose bytes they are
    cdef uint8_t* data              # NULL if there are none; read-only unless requested writable
    cdef Py_ssize_t size

# The bytes of any object with the buffer protocol. Raises BufferError if they are not contiguous,
# or not writable when that was requested.
cdef MemoryView view_of(object source, bint writable=?)
