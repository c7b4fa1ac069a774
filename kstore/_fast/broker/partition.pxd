# One partition as Produce and Fetch see it, and its topic.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.broker.partition_events cimport PartitionEvents, TopicCounts, Wakeable
from kstore._fast.broker.replica_state cimport Follower, ReplicaState
from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.log.append_queue cimport AppendJob, CallbackJob
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.record.unpack cimport Verdict

# An append that the loop is told of when the partition has been.
cdef class PartitionJob(CallbackJob):
    cdef Partition partition

cdef class Partition(Wakeable):
    cdef readonly TopicEntry entry
    cdef readonly int32_t index
    cdef public int32_t leader_epoch
    cdef public int32_t leader_id
    cdef public int32_t partition_epoch     # KIP-232; -1: it has none
    cdef public bint online                 # this broker leads it and its log is open
    cdef readonly bint deleted
    cdef readonly bint failed               # its log dir has failed: KAFKA_STORAGE_ERROR
    cdef readonly bint follows              # it has a replica here, led elsewhere
    cdef readonly ReplicaState replication  # None: not led here, or the only replica
    cdef readonly tuple replicas            # node ids, this broker included
    cdef readonly tuple isr                 # that the controller knows
    cdef readonly int32_t isr_version       # of the state that says so
    cdef readonly tuple proposed_isr        # that the controller is asked for; None: none
    cdef PartitionEvents events             # None: it is in no table yet
    cdef dict waiters                       # Waiter -> None, in order of arrival
    # As a follower: the leader's high watermark, as far as the log went when it was told.
    cdef int64_t heard_high_watermark
    cdef readonly int stored_codec          # what client batches are stored in; -1: as they come
    cdef readonly int stored_level          # of that codec; -1: its own default
    cdef public int32_t insync_replicas     # how many there are
    cdef int64_t expected_end               # of the log, when what `append_later` took is in it
    cdef readonly int32_t min_insync_replicas   # how many a write with acks=all needs
    cdef int append(self, uint8_t* data, Py_ssize_t size, int origin, AppendResult* out) except -1
    # the same; a thread has looked into the batch, or has not and says how much is done here
    cdef int append_seen(
        self, uint8_t* data, Py_ssize_t size, int origin, Verdict seen, AppendResult* out
    ) except -1
    # on the loop, after each append of a thread, in the order of the log
    cdef int end_append(self, AppendJob job) except -1
    cdef int note_grown(self, int64_t end_before) except -1
    cdef int note_error(self, problem) except -1
    cdef int listen(self) except -1
    cdef int moved(self) except -1
    cdef int tell_high_watermark(self) except -1
    cdef Follower admit_follower(self, int32_t node_id, int64_t broker_epoch)
    cdef int note_fetch(
        self, Follower follower, int64_t fetch_offset, int64_t log_start_offset, int64_t now_ms
    ) except -1

cdef class TopicEntry:
    cdef readonly bytes name
    cdef readonly bytes topic_id            # 16 bytes
    cdef readonly bint internal
    cdef readonly list partitions
    cdef readonly TopicCounts counts
    cdef public int32_t partition_count     # what producers have to know; -1: as many as are here
    cdef public int32_t retired_from        # partitions from here on take no records; -1: all do
    cdef public bint count_required         # a producer has to say its count
    cdef public bint mirror                 # an exact copy: it takes Exact batches alone
    # Of producers here; smaller ids are another cluster's, whose batches are, or were, copied.
    cdef public int64_t least_producer_id
