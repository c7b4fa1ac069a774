# The interpreter of plans, for Cython callers that hold a raw frame.

from libc.stdint cimport uint8_t

from kstore._fast.protocol.plan cimport Plan

# Records and bytes are copied; next (may be NULL) gets the end of the message.
cdef object decode_raw(Plan plan, const uint8_t* p, const uint8_t* end, const uint8_t** next)
