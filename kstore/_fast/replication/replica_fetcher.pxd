# The connection by which this broker copies the partitions that one other broker leads.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.broker.produce_later cimport FrameMemory
from kstore._fast.log.append_queue cimport AppendJob
from kstore._fast.replication.fetched_part cimport FetchedPart
from kstore._fast.replication.replica_session cimport Followed, ReplicaSession

# The data of one partition, appended by a thread.
cdef class ReplicaJob(AppendJob):
    cdef ReplicaFetcher fetcher
    cdef Followed followed
    cdef FetchedPart part

cdef class ReplicaFetcher(ReplicaSession):
    cdef object owner
    cdef object call_soon
    cdef object transport
    cdef int fd
    cdef public bint durable                # copied data is on disk before it is acknowledged
    cdef bint waits_for_disk
    cdef bint scheduled
    cdef int32_t answered
    cdef readonly int64_t bytes_in
    # the bytes received
    cdef uint8_t* data
    cdef Py_ssize_t capacity, start, end
    cdef FrameMemory pinned                 # the same, while threads append from them; or None
    # the answer that is being handled
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
    cdef int append_later(self, Followed followed, FetchedPart* part, Py_ssize_t size) except -1
    cdef int end_append(self, ReplicaJob job) except -1
    cdef int note_part(self, Followed followed, const FetchedPart* part) except -1
    cdef bint must_wait_for_disk(self) except? True
    cdef int send_fetch(self) except -1
    cdef int put_on_wire(self) except -1
    cdef int reserve(self, Py_ssize_t capacity) except -1
    cdef int grow(self, Py_ssize_t capacity) except -1
    cdef bint is_pinned(self) noexcept
    cdef int tidy_buffer(self) except -1
