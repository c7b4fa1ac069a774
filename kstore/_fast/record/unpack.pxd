# Compressed batches of clients: the limit of their size, and a check of their records that needs
# little memory.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    AT_ONCE_BYTES = 262144          # a batch that expands to more is checked in a thread

# The result of the check of one batch.
cdef class Verdict:
    cdef readonly int status        # a BatchStatus; -1: not checked
    cdef int64_t max_timestamp      # the largest of the records'
    cdef readonly bint has_keys     # each record has a key
    cdef readonly bytearray anew    # the batch in the requested codec; None: unchanged
    cdef int64_t max_bytes          # that the current check may decompress

# The claimed size of a compressed payload: never less than the real one, except for gzip, whose
# trailer may be wrong. -1: it is incomplete.
cdef int64_t claimed_bytes(int codec, const uint8_t* p, Py_ssize_t size) noexcept nogil

# The limit to which the records of a client's compressed batch of that size may expand.
cdef int64_t max_unpacked_bytes(Py_ssize_t size, int64_t max_message_bytes) noexcept nogil
