# A Produce request, versions 3 to 13: its frame is read once, into arrays for the later passes.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.protocol.wire cimport WireBytes, WireReader

cdef enum:
    FIRST_FLEXIBLE = 9
    FIRST_TOPIC_ID = 13

cdef struct ProduceTopic:
    WireBytes name                  # or its id of 16 bytes
    Py_ssize_t first                # the number of its first partition in the request
    Py_ssize_t count
    int64_t known_count             # the producer's partition count (KIP-253); -1: none

cdef struct ProducePartition:
    WireBytes records               # in the frame
    int64_t known_epoch             # the producer's leader epoch (KIP-359); -1: none
    int64_t known_life              # the producer's partition epoch (KIP-232); -1: any
    int32_t index

# It points into the frame, and is valid while the frame exists.
cdef class ProduceRequest:
    cdef int version
    cdef bint flexible
    cdef bint by_id                 # topics are named by their ids
    cdef WireBytes transactional_id
    cdef bint in_transaction        # it names a transactional id
    cdef int16_t acks
    cdef int32_t timeout_ms
    cdef bint use_offset            # KIP-391: its batches have given offsets
    cdef bint exact                 # batches of another cluster, to store unchanged
    cdef bint packed                # a batch is compressed, or large
    cdef bint transactional         # a batch may belong to a transaction: must be checked
    cdef ProduceTopic* topics
    cdef Py_ssize_t topic_count
    cdef Py_ssize_t topic_room
    cdef ProducePartition* partitions       # of all topics, one after the other
    cdef Py_ssize_t partition_count
    cdef Py_ssize_t partition_room
    # Reads a request; r is after its header. False: it is truncated or malformed.
    cdef bint parse(self, WireReader r, int version) except -1
    cdef void begin(self, int version) noexcept
    # Whether a topic or a partition is named twice, or a topic without partitions.
    cdef bint repeats(self) except -1
    cdef int merge(self) except -1
    cdef int put_merged(self, dict topics, ProducePartition* partitions) except -1
    cdef int grow_topics(self) except -1
    cdef int grow_partitions(self) except -1
    # Frees the memory of a large request.
    cdef void trim(self) noexcept
