# A fetch's part for one partition, and the fetch session (KIP-227) that remembers it between
# requests.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.disk.page_reader cimport ColdRead
from kstore._fast.log.log_view cimport Slice
from kstore._fast.broker.partition cimport Partition, TopicEntry
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.replica_state cimport Follower
from kstore._fast.log.segment_file cimport SegmentFile

cdef class FetchPart:
    cdef bytes topic                        # the name, or the id's 16 bytes
    cdef bint by_id
    cdef int32_t index
    cdef Partition partition
    # the request
    cdef int64_t fetch_offset
    cdef int32_t max_bytes
    cdef int32_t current_leader_epoch       # -1: not checked
    cdef int32_t last_fetched_epoch         # -1: not checked
    cdef int64_t reader_start_offset        # a follower's log start offset
    # the last values that were sent in the session
    cdef int64_t told_high_watermark
    cdef int64_t told_log_start_offset
    # the result of a look
    cdef int16_t error
    cdef int64_t high_watermark
    cdef int64_t last_stable_offset
    cdef int64_t log_start_offset
    cdef int32_t diverging_epoch            # -1: none
    cdef int64_t diverging_end_offset
    cdef int32_t preferred_replica          # the preferred read replica (KIP-392), or -1
    # for a follower, if a look found nothing: the state that it saw
    cdef Follower follower                  # None: look again
    cdef int64_t seen_end_offset
    cdef int32_t seen_epoch
    cdef ColdRead cold                      # the data that is or was being read for it; None: none
    cdef int64_t cold_offset                # for a fetch of this offset
    cdef int waits                          # how often the fetch waited for that offset
    cdef SegmentFile file
    cdef Slice slice                        # size_bytes 0: nothing to read
    cdef bint is_unchanged(self) noexcept
    cdef int set_unchanged(self, Follower follower) except -1
    cdef int resolve(self, PartitionTable table) except -1
    cdef int16_t check_offset(self) except -1
    cdef int check_divergence(self) except -1
    cdef int prefer(self, int32_t here, bytes rack) except -1
    cdef bint expects_more(self) noexcept
    cdef bint still_expects(self) noexcept
    cdef int end_gathering(self, bint come) noexcept
    cdef int16_t check_rights(
        self, object sink, object rights, bint barred, PartitionTable table) except -1
    cdef bint has_news(self) noexcept
    cdef int told(self) noexcept

cdef class FetchSession:
    cdef readonly int32_t session_id
    cdef int32_t epoch                      # that the next request must have
    cdef readonly object principal          # its principal: only this one may continue or end it,
    cdef object listener                    # and only on this listener
    cdef readonly bint by_id
    cdef readonly bint privileged           # a follower's
    cdef readonly int64_t created_ms
    cdef readonly int64_t last_used_ms
    cdef dict parts                         # (topic, index) -> FetchPart, next to be served first
    cdef object parked                      # the waiting FetchRequest, or None
    cdef bint belongs_to(self, object principal, object listener) except -1
    cdef bint merge(self, list named, list forgotten) except -1
    cdef int rotate(self, FetchPart part) except -1
