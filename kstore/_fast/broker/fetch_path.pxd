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
    cdef bint noting                        # the first look notes how far the follower has come
    cdef bytes rack                         # the consumer's; None: it says none
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
    cdef bint urgent                        # something that is answered at once
    cdef bint cold                          # something is being read in from the disk
    cdef bint partial                       # more is expected of all that it found
    cdef bint gathering                     # it waits for more
    cdef bint gathered                      # it has waited long enough for more
    cdef bint overdue                       # it has waited as long as it may, but for that
    cdef dict injected                      # partition -> error code, as in FetchPath
    cdef object rights                      # of who sent it (state.authorizer.Rights); None: all
    cdef bint barred                        # it says that it is a follower, and may not be one
    cdef int take_rights(self, object rights) except -1
    cdef bint look_again(self) except -1
    cdef bint is_ready(self) noexcept
    cdef bint still_gathers(self) noexcept
    cdef int finish(self) except -1
    cdef int unpark(self) except -1

cdef class FetchPath:
    cdef PartitionTable table
    cdef readonly object cache                     # broker.state.fetch_session.FetchSessionCache
    cdef dict sessions
    cdef object report
    cdef readonly int64_t max_bytes         # fetch.max.bytes
    cdef readonly int64_t requests
    cdef readonly int64_t bytes_out
    # may_send(partition, node id), sent(partition, node id, bytes): holds followers that are behind
    # to a rate (runtime/leader_throttle.py); None while there is none
    cdef public object throttle
    # the listener that followers come to; None: any. Only where there are rights
    cdef public object peer_listener
    cdef SlotDeadlines waits                # for data
    cdef Gathering gathering                # fetches that wait for more data
    # what broker/faults.py has the request at hand answered with: partition -> error code, or None;
    # an error of the whole fetch, or 0
    cdef public dict injected
    cdef public int16_t injected_error
    cdef object rights                      # of who sent the request at hand; None: all
    cdef int64_t quota_bytes                # the most that its quota allows at once
    cdef bint from_follower                 # of the request at hand: no quota of clients is for it
    cdef bint held                          # the request at hand is to be handled again
    # r stands behind the request header. None: answered (or malformed: r.bad; or held). Otherwise
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
