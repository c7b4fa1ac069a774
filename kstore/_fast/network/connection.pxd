# One client connection on the loop.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.broker.produce_later cimport FrameMemory
from kstore._fast.network.request_paths cimport RequestHead, RequestPaths
from kstore._fast.protocol.wire cimport WireReader

cdef class Connection(RequestPaths):
    cdef readonly int64_t connection_id
    cdef public object authentication       # handles its frames until it is; or None
    cdef public int64_t max_frame_bytes
    cdef bint read_paused
    cdef object fate                        # of the first request, if it has a fault; or None
    cdef readonly int64_t last_active_ms
    cdef bint fresh                         # the bytes at hand have just been read
    cdef uint8_t* own                       # the part of an incomplete request that was read
    cdef Py_ssize_t own_capacity, own_end
    cdef FrameMemory pinned                 # own, while threads append from it; or None
    cdef int64_t admitted_bytes             # this connection's part of plane.queued_bytes
    cdef int handle_read(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int handle_all(self, uint8_t* data, Py_ssize_t size) except -1
    cdef Py_ssize_t handle_frames(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int handle_frame(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int handle_unauthenticated(self, uint8_t* data, Py_ssize_t size) except -1
    cdef int refuse_size(self, int64_t size) except -1
    cdef int serve_struck(self, RequestHead* head, WireReader* r) except -1
    cdef int carry_out(self, object fate, RequestHead* head, WireReader* r) except -1
    cdef int keep_rest(self, uint8_t* data, Py_ssize_t size, bint progress) except -1
    cdef int reserve(self, Py_ssize_t capacity) except -1
    cdef bint admit(self, int64_t size) except? False
    cdef int give_back(self) except -1
    cdef bint give_to_threads(self) noexcept
    cdef bint may_handle(self) noexcept
    cdef bint wants_budget(self) except? True
