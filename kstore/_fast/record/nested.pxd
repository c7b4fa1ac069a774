# A record batch that is the value of a record of another batch.

from libc.stdint cimport uint8_t, uint32_t

cdef class NestedBatch:
    cdef object keeps               # what the memory belongs to
    cdef uint8_t* data              # changed in place by sign()
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int records
    cdef uint32_t rest_crc          # of what lies behind the header
