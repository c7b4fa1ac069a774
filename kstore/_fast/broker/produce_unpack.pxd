# Which batches of a Produce request a thread has to look into first.

from libc.stdint cimport int64_t

from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.produce_request cimport ProduceRequest
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
