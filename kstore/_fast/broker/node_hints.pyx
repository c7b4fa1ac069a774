"""KIP-951: a partition's leader and its endpoint, for clients that asked the wrong broker.

The same tagged fields in Produce and Fetch answers. Endpoints come from the table's
`node_endpoint`, encoded; this module knows no broker.
"""

from kstore._fast.protocol.wire cimport put_count, put_int8, put_int32, put_raw, put_unsigned, room

cdef enum:
    NODE_ENDPOINTS_TAG = 0


cdef int put_leader(AnswerBuffer out, int tag, Partition partition) noexcept:
    put_int8(out, tag)
    put_int8(out, 9)
    put_int32(out, partition.leader_id)
    put_int32(out, partition.leader_epoch)
    put_int8(out, 0)
    return 0


cdef int write_endpoints(
    AnswerBuffer out, PartitionTable table, list leaders, listener
) except -1:
    """The tagged fields at the end of an answer: the endpoints of known leaders."""
    cdef bytes encoded
    cdef list found = []
    cdef Py_ssize_t size = 0
    for node_id in leaders or ():
        encoded = table.node_endpoint(node_id, listener)
        if encoded is not None:
            found.append(encoded)
            size += len(encoded)
    room(out, size + 16)
    if not found:
        put_int8(out, 0)
        return 0
    put_int8(out, 1)
    put_int8(out, NODE_ENDPOINTS_TAG)
    put_unsigned(out, size + 1)             # fewer than 127 brokers: the count has one byte
    put_count(out, len(found), True)
    for encoded in found:
        put_raw(out, <const unsigned char*>encoded, len(encoded))
    return 0
