# Fetch, versions 4 to 18, from the frame to the answer, with sessions and the long poll.

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t

from kstore._fast.broker.fetch_session cimport FetchPart, FetchSession
from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.slots cimport AnswerSink, Gathering, Slot, SlotDeadlines
from kstore._fast.protocol.wire cimport AnswerBuffer, WireReader

cdef class FetchRequest(Slot):
    cdef FetchPath path
    cdef int version
    cdef int32_t replica_id
    cdef int64_t replica_epoch
    cdef bint noting                        # the first look notes the follower's progress
    cdef bytes rack                         # the consumer's rack, or None
    cdef int32_t max_wait_ms
    cdef int64_t min_bytes
    cdef int64_t max_bytes
    cdef int8_t isolation_level
    cdef int32_t session_id
    cdef int32_t session_epoch
    cdef FetchSession session               # the one it continues
    cdef bint opens_session
    cdef list named                         # FetchPart of the request
    cdef list forgotten                     # (topic, index)
    cdef list parts                         # FetchPart to be read
    cdef int64_t found_bytes
    cdef bint urgent                        # something must be answered at once
    cdef bint cold                          # something is being read from disk
    cdef bint partial                       # more is expected for all that it found
    cdef bint gathering                     # it waits for more
    cdef bint gathered                      # it has waited long enough for more
    cdef bint overdue                       # it has waited for its maximum time, except for that
    cdef dict injected                      # partition -> error code, as in FetchPath
    cdef object rights                      # the client's (state.authorizer.Rights); None: all
    cdef bint barred                        # it claims to be a follower, without the right
    cdef int take_rights(self, object rights) except -1
    cdef bint look_again(self) except -1
    cdef bint is_ready(self) noexcept
    cdef bint still_gathers(self) noexcept
    cdef int finish(self) except -1
    cdef int unpark(self) except -1

cdef class FetchPath:
    cdef PartitionTable table
    cdef readonly object cache                     # FetchSessionCache of broker.state.replication
    cdef dict sessions
    cdef object report
    cdef readonly int64_t max_bytes         # fetch.max.bytes
    cdef readonly int64_t requests
    cdef readonly int64_t bytes_out
    # may_send(partition, node id), sent(partition, node id, bytes): limits the rate of followers
    # that are behind (runtime/replication/leader_throttle.py); None without a limit
    cdef public object throttle
    # the listener for followers; None: any. Only with an authorizer
    cdef public object peer_listener
    cdef SlotDeadlines waits                # for data
    cdef Gathering gathering                # fetches that wait for more data
    # injected by broker/faults.py for the current request: partition -> error code, or None; an
    # error of the whole fetch, or 0
    cdef public dict injected
    cdef public int16_t injected_error
    cdef object rights                      # the rights for the current request; None: all
    cdef int64_t quota_bytes                # the most that its quota allows at once
    cdef bint from_follower                 # no client quota applies to the current request
    cdef bint held                          # the current request must be handled again
    # r is after the request header. None: answered (or malformed: r.bad; or held). Otherwise
    # the parked request.
    cdef FetchRequest handle(
        self, AnswerSink sink, WireReader* r, int version, int32_t correlation_id, AnswerBuffer out)
    cdef bint must_wait(self, FetchRequest request) except -1
    cdef int16_t open_session(self, FetchRequest request) except -1
    cdef FetchSession session_of(self, FetchRequest request)
    cdef int look(self, FetchRequest request) except -1
    cdef int look_part(
        self, FetchRequest request, FetchPart part, int64_t limit, bint min_one) except -1
    cdef int check_follower(self, FetchRequest request, FetchPart part) except -1
    cdef int park(self, FetchRequest request) except -1
    cdef int write_answer(self, FetchRequest request, AnswerBuffer out) except -1
    cdef int write_rows(self, FetchRequest request, list parts, AnswerBuffer out) except -1
