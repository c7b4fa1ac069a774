# The parts of a Produce request that threads do: checks of batches, and appends.

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

# The batches to check before the request is handled: [(place, batch, max_bytes, codec, level)],
# with the arguments of unpack.look_into after the place (a batch's number in the request); or None.
# verdicts: those known already, by place, or None. Checks on the loop are taken from budget.
cdef list find_packed(
    PartitionTable table, ProduceRequest request, object rights, dict verdicts, int64_t* budget)

# Whether a refused batch's records have other offsets than consecutive ones.
cdef bint has_gaps(WireBytes records, Verdict seen) except -1

# The bytes of a request that threads append from. The connection owns them until it gives them up;
# then they are freed with the last append.
cdef class FrameMemory:
    cdef uint8_t* data
    cdef bint owns
    cdef int users                          # unfinished appends; a fetcher counts them

# The batch at one place of a request, appended by a thread.
cdef class ProduceJob(AppendJob):
    cdef Partition partition
    cdef ReplicaState replication           # of this leader, when it was queued
    cdef ProduceAppends group
    cdef readonly Py_ssize_t frame_bytes    # of the batch, as received

# The appends by threads for the first remaining request of a connection.
cdef class ProduceAppends:
    cdef AnswerSink sink
    cdef dict jobs                          # a batch's place in the request -> ProduceJob
    cdef list fresh                         # those that are not queued yet
    cdef int missing                        # those that are not finished
    cdef dict refused                       # the answer of the transaction coordinator, or None
    # Queue a batch for a thread, which gets it with `submit`; anew: appended in place of the
    # original.
    cdef int add(
        self, Py_ssize_t place, Partition partition, WireBytes records, bytearray anew, int origin,
        Verdict seen) except -1
    # The frame was moved to another buffer, where it stays.
    cdef FrameMemory submit(self, uint8_t* frame, uint8_t* was)
    cdef int one_done(self) except -1
