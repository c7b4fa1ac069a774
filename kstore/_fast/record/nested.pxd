# Record batches that are the value of a record of another batch.

from libc.stdint cimport uint8_t

cdef class NestedBatches:
    cdef object keeps               # the owner of the memory
    cdef uint8_t* data              # changed in place by sign()
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t largest_bytes
    cdef readonly int count
    cdef readonly int records
