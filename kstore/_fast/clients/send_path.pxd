# The function that a producer's users call for each record.

from kstore._fast.clients.accumulator cimport Accumulator

cdef class SendPath:
    cdef readonly Accumulator accumulator
    cdef bint plain                 # every record may take the fast path
