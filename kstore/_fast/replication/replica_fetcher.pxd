# The connection by which this broker copies the partitions that one other broker leads.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.replication.replica_session cimport Followed, ReplicaSession
from kstore._fast.protocol.wire cimport WireReader

# Where one partition's part of an answer lies, and what it says.
cdef struct FetchedPart:
    int32_t index
    int16_t error
    int64_t high_watermark
    int64_t log_start_offset
    const uint8_t* records
    Py_ssize_t records_size
    int32_t diverging_epoch                 # -1: it does not diverge
    int64_t diverging_end_offset

cdef class ReplicaFetcher(ReplicaSession):
    cdef object owner
    cdef object call_soon
    cdef object transport
    cdef int fd
    cdef public bint durable                # what is copied is on the disk before it is told of
    cdef bint waits_for_disk
    cdef bint scheduled
    cdef int32_t answered
    cdef readonly int64_t bytes_in
    # the bytes received
    cdef uint8_t* data
    cdef Py_ssize_t capacity, start, end
    # the answer that is being worked through
    cdef bint in_frame
    cdef Py_ssize_t at, frame_end
    cdef Py_ssize_t topics_left, parts_left
    cdef dict topic
    cdef int64_t throttled_bytes
    cdef int take_frames(self) except -1
    cdef int begin_frame(self) except -1
    cdef bint go_through(self) except? True
    cdef int end_frame(self) except -1
    cdef int take_part(self, Followed followed, FetchedPart* part) except -1
    cdef bint append_records(self, Followed followed, FetchedPart* part) except? True
    cdef bint must_wait_for_disk(self) except? True
    cdef int send_fetch(self) except -1
    cdef int put_on_wire(self) except -1
    cdef int reserve(self, Py_ssize_t capacity) except -1
    cdef int grow(self, Py_ssize_t capacity) except -1
    cdef int tidy_buffer(self) except -1
