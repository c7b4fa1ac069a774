# An object's bytes, borrowed for as long as this view of them lives. Typed memoryviews would do
# the same, but each module that names one carries 15,000 lines of C for it.

from libc.stdint cimport uint8_t

cdef class MemoryView:
    cdef Py_buffer buffer
    cdef bint held
    cdef object source              # the object whose bytes they are
    cdef uint8_t* data              # NULL where there are none; not to be written unless asked for
    cdef Py_ssize_t size

# The bytes of any object with the buffer protocol; BufferError where they are not contiguous, or
# not writable though asked for.
cdef MemoryView view_of(object source, bint writable=?)
