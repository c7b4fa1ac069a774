# What of a Produce request is left to threads: a look into batches, and appends.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.produce_request cimport ProduceRequest
from kstore._fast.broker.replica_state cimport ReplicaState
from kstore._fast.broker.slots cimport AnswerSink
from kstore._fast.log.append_queue cimport AppendJob
from kstore._fast.record.unpack cimport Verdict
from kstore._fast.protocol.wire cimport WireBytes

cdef enum:
    TURN_BYTES = 4194304            # that requests handled in one turn may decompress on the loop

# What is to be looked into before the request is handled: [(place, batch, max_bytes, codec, level)]
# as unpack.look_into takes it behind the place, a batch's number in the request; None: nothing.
# verdicts, by place, are there already, or None. What may be done on the loop is taken from budget.
cdef list find_packed(
    PartitionTable table, ProduceRequest request, object rights, dict verdicts, int64_t* budget)

# Whether a refused batch's records have other offsets than consecutive ones.
cdef bint has_gaps(WireBytes records, Verdict seen) except -1

# The bytes of a request that threads append from. They are its connection's, until that gives them
# up: then they go with the last append.
cdef class FrameMemory:
    cdef uint8_t* data
    cdef bint owns
    cdef int users                          # appends that are not done; a fetcher counts them

# The batch at one place of a request, appended by a thread.
cdef class ProduceJob(AppendJob):
    cdef Partition partition
    cdef ReplicaState replication           # with which this broker led, when it was queued
    cdef ProduceAppends group
    cdef readonly Py_ssize_t frame_bytes    # of the batch, as it came

# What threads append of the first request that a connection has left.
cdef class ProduceAppends:
    cdef AnswerSink sink
    cdef dict jobs                          # a batch's place in the request -> ProduceJob
    cdef list fresh                         # of them, those that no thread has yet
    cdef int missing                        # and those that are not done
    cdef dict refused                       # what the coordinator of transactions has said, or None
    # Leave a batch to a thread, once `submit` is called; anew: it is appended instead of what came.
    cdef int add(
        self, Py_ssize_t place, Partition partition, WireBytes records, bytearray anew, int origin,
        Verdict seen) except -1
    # The frame, which was read to one place, lies in another now, where it stays.
    cdef FrameMemory submit(self, uint8_t* frame, uint8_t* was)
    cdef int one_done(self) except -1
