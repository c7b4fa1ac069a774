# A Produce request, versions 3 to 13, as its frame has it: read once, into arrays that the passes
# over it work on.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.protocol.wire cimport WireBytes, WireReader

cdef enum:
    FIRST_FLEXIBLE = 9
    FIRST_TOPIC_ID = 13

cdef struct ProduceTopic:
    WireBytes name                  # or its id of 16 bytes
    Py_ssize_t first                # the number of its first partition in the request
    Py_ssize_t count
    int64_t known_count             # partitions that the producer knows (KIP-253); -1: it says none

cdef struct ProducePartition:
    WireBytes records               # in the frame
    int64_t known_epoch             # the leader epoch that the producer knows (KIP-359); -1: none
    int64_t known_life              # the partition epoch that it means (KIP-232); -1: any
    int32_t index

# What it points to is the frame's: it holds while the frame does.
cdef class ProduceRequest:
    cdef int version
    cdef bint flexible
    cdef bint by_id                 # topics are named by their ids
    cdef WireBytes transactional_id
    cdef bint in_transaction        # it names a transactional id
    cdef int16_t acks
    cdef int32_t timeout_ms
    cdef bint use_offset            # KIP-391: its batches bring their offsets
    cdef bint exact                 # they are another cluster's batches, to be stored as they are
    cdef bint packed                # a batch is compressed, or large
    cdef bint transactional         # a batch may belong to a transaction: a look tells
    cdef ProduceTopic* topics
    cdef Py_ssize_t topic_count
    cdef Py_ssize_t topic_room
    cdef ProducePartition* partitions       # of all topics, one after the other
    cdef Py_ssize_t partition_count
    cdef Py_ssize_t partition_room
    # Reads a request; r stands behind its header. False: it is cut short, or malformed.
    cdef bint parse(self, WireReader r, int version) except -1
    cdef void begin(self, int version) noexcept
    # Whether a topic or a partition is named twice, or a topic without partitions.
    cdef bint repeats(self) except -1
    cdef int merge(self) except -1
    cdef int put_merged(self, dict topics, ProducePartition* partitions) except -1
    cdef int grow_topics(self) except -1
    cdef int grow_partitions(self) except -1
    # Gives the memory back that a large request took.
    cdef void trim(self) noexcept
