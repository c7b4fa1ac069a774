# Collects a producer's records in batches, one open batch per partition.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kstore._fast.clients.producer_batch cimport Delivery, ProducerBatch

cdef enum Obstacle:                 # why append() took nothing
    OBSTACLE_NONE = 0
    OBSTACLE_TOPIC = 1              # its partitions are unknown, or about to change
    OBSTACLE_MEMORY = 2             # buffer.memory is full
    OBSTACLE_GATE = 3               # closed or paused: the owner of the gate knows

cdef enum PartitionerKind:
    BY_MURMUR2 = 0
    BY_STICKINESS = 1               # keys are ignored
    BY_JUMP_HASH = 2                # `ordered`
    BY_CALLABLE = 3

# A record's parts in memory. They are valid while their owners live.
cdef struct RecordParts:
    const uint8_t* key
    Py_ssize_t key_size             # -1: null
    const uint8_t* value
    Py_ssize_t value_size
    const uint8_t* headers
    Py_ssize_t headers_size
    int32_t header_count
    bint pinned                     # the user chose the partition

cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly ProducerBatch open
    cdef readonly object closed     # deque of full batches, oldest first
    # the last batch became full: the next one gets all its memory at once
    cdef bint fills
    cdef int offset_mode            # 0: unknown, 1: without offsets, 2: with offsets (KIP-391)
    cdef public bint hurried        # the open batch must not linger
    cdef public object sends        # the sender's state of the partition

cdef class TopicQueues:
    cdef readonly str name
    cdef readonly list partitions
    cdef readonly int32_t count     # 0: records must wait
    cdef int32_t sticky             # the partition of records without a key
    cdef int64_t sticky_bytes
    cdef list weights               # running sums, to choose the next sticky partition; or None
    cdef list choices               # the partitions to choose from

cdef class Accumulator:
    cdef readonly Py_ssize_t batch_size
    cdef readonly Py_ssize_t memory_bytes
    cdef readonly Py_ssize_t used_bytes
    cdef readonly Py_ssize_t max_request_size
    cdef readonly int obstacle
    cdef int compression
    cdef int level
    cdef int partitioner
    cdef object chooser
    cdef dict topics
    cdef object last_name           # the topic of the last record
    cdef TopicQueues last_queues
    cdef readonly set incomplete    # batches that are not done
    cdef readonly set active        # queues with records
    cdef public object gate         # not None: no records are accepted
    cdef public object wake         # called in the users' threads when a batch may be sent
    cdef bint wake_wanted           # the loop must be woken when the current step is complete
    cdef public bint woken
    cdef public bint patient        # batches linger although a caller waits for them
    cdef public bint timed          # a check of lingering batches is scheduled
    cdef public bint quiet          # nothing can be sent before the next answer
    cdef public object loop_thread
    cdef public object on_room      # called when memory is freed while a caller waits; or None
    cdef int64_t batches_begun
    cdef uint64_t random_state
    cdef uint8_t* spare[64]
    cdef int spares

    cdef int choose(self, TopicQueues topic, RecordParts* parts) except -1
    cdef int next_sticky(self, TopicQueues topic) except -1
    cdef ProducerBatch batch_for(
        self, TopicQueues topic, PartitionQueue queue, Py_ssize_t need, int64_t offset,
        bint pinned)
    cdef ProducerBatch begin(
        self, TopicQueues topic, PartitionQueue queue, Py_ssize_t need, int64_t offset)
    cdef int close_open(self, PartitionQueue queue) except -1
    cdef int tell(self) except -1
    cdef ProducerBatch put(self, TopicQueues topic, int32_t partition, RecordParts* parts,
                           int64_t timestamp, int64_t offset)
    cdef TopicQueues look_up(self, object name)
    cdef Delivery append(self, object topic, object value, object key, object partition,
                         object timestamp, object headers, object offset, object on_delivery,
                         bint passes=?)
