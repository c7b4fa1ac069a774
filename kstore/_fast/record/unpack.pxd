# Compressed batches of clients: how much they may hold, and a look at their records that needs
# little memory.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    AT_ONCE_BYTES = 262144          # what decompresses to more is looked at in a thread

# What a look at one batch found.
cdef class Verdict:
    cdef readonly int status        # a BatchStatus; -1: nobody has looked
    cdef int64_t max_timestamp      # the largest of the records'
    cdef readonly bint has_keys     # each record has one
    cdef readonly bytearray anew    # the batch in the codec that was asked for; None: as it came
    cdef int64_t max_bytes          # that whoever looks now may decompress

# What a compressed payload says that it holds: never less than it does, but for gzip, whose trailer
# may lie. -1: it is not whole.
cdef int64_t claimed_bytes(int codec, const uint8_t* p, Py_ssize_t size) noexcept nogil

# What the records of a client's compressed batch of that size may decompress to.
cdef int64_t max_unpacked_bytes(Py_ssize_t size, int64_t max_message_bytes) noexcept nogil
