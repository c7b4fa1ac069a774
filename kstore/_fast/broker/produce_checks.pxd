# Why a batch of a Produce request is not appended: Kafka's error codes, NONE for nothing.

from libc.stdint cimport int16_t, int64_t

from kstore._fast.broker.partition cimport Partition, TopicEntry
from kstore._fast.broker.produce_request cimport ProduceRequest
from kstore._fast.protocol.wire cimport WireBytes

cdef int16_t check_records(
    WireBytes records, int version, bint in_transaction, bint use_offset) noexcept nogil
cdef bint has_transactional(ProduceRequest request) noexcept
cdef bint has_transaction(Partition partition, int64_t producer_id, int16_t epoch) except -1
cdef int16_t check_place(
    TopicEntry entry, Partition partition, WireBytes records, int64_t known_count) except -1
cdef int16_t check_leader(Partition partition, int64_t known_epoch) noexcept
