# The partitions to fetch from one leader, the fetch session, and the Fetch request.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.broker.partition cimport Partition
from kstore._fast.protocol.wire cimport AnswerBuffer

# One partition that is copied.
cdef class Followed:
    cdef readonly Partition partition
    cdef readonly object key                # its TopicPartition
    cdef readonly int32_t leader_epoch
    cdef public object state                # the owner's data for it
    cdef public bint throttled              # its bytes count towards the follower's throttle
    cdef readonly bint held                 # it is not fetched until it is released
    cdef readonly int64_t leader_high_watermark     # as last reported by the leader
    cdef bytes topic_id
    cdef int32_t index
    cdef bint appending                     # a thread appends the last data
    cdef bint asked                         # the leader has it in the session
    cdef bint changed                       # it is in the session's list of changed partitions
    cdef int64_t asked_offset               # as the leader knows it
    cdef int32_t first_request              # the number of the first fetch that named it
    cdef int32_t offset_request             # and of the one that sent asked_offset

cdef class ReplicaSession:
    cdef readonly int32_t leader_id
    cdef int32_t node_id
    cdef public int64_t broker_epoch
    cdef public int32_t max_wait_ms, min_bytes, max_bytes, partition_bytes
    cdef bytes client_id
    cdef dict topics                        # topic id -> {index: Followed}
    cdef list changed                       # Followed that the next fetch must name
    cdef list forgotten                     # (topic id, index) that the leader must forget
    cdef readonly int32_t active            # the number that are fetched
    cdef int32_t session_id
    cdef int32_t session_epoch
    cdef bint no_session                    # the leader has no session for this broker
    cdef bint urgent                        # a partition was added since the last fetch
    cdef int32_t sent                       # fetches written for this connection
    cdef AnswerBuffer out
    cdef int drop(self, bytes topic_id, int32_t index) except -1
    cdef int want(self, Followed followed) except -1
    cdef int fetch_soon(self) except -1
    cdef int note_changed(self, Followed followed) except -1
    cdef int begin_session(self) except -1
    cdef int write_next(self) except -1     # into out
    cdef int write_fetch(self, list listed, list forgotten) except -1
    cdef int write_topics(self, list listed) except -1
    cdef int write_forgotten(self, list forgotten) except -1
