# One partition, for Produce and Fetch, and its topic.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.broker.partition_events cimport PartitionEvents, TopicCounts, Wakeable
from kstore._fast.broker.replica_state cimport Follower, ReplicaState
from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.log.append_queue cimport AppendJob, CallbackJob
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.record.unpack cimport Verdict

# An append that the loop is notified of, after its partition.
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
    cdef readonly bint follows              # another broker leads its replica here
    cdef readonly ReplicaState replication  # None: not led here, or the only replica
    cdef readonly tuple replicas            # node ids, this broker included
    cdef readonly tuple isr                 # that the controller knows
    cdef readonly int32_t isr_version       # of that state
    cdef readonly tuple proposed_isr        # that was proposed to the controller; None: none
    cdef PartitionEvents events             # None: it is in no table yet
    cdef dict waiters                       # Waiter -> None, in order of arrival
    # On a follower: the leader's high watermark, limited to the log end when it was received.
    cdef int64_t heard_high_watermark
    cdef readonly int stored_codec          # the codec of stored client batches; -1: the producer's
    cdef readonly int stored_level          # of that codec; -1: its default
    cdef public int32_t insync_replicas     # how many there are
    cdef int64_t expected_end               # of the log, after the batches of `append_later`
    cdef int64_t planned_job, planned_term  # of the last append by it: its number, the log's term
    cdef public dict ending                 # producer id -> markers that threads append; or None
    cdef readonly int32_t min_insync_replicas   # the number that a write with acks=all needs
    cdef int append(self, uint8_t* data, Py_ssize_t size, int origin, AppendResult* out) except -1
    # the same; a thread has checked the batch, or not, and says how much is checked here
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
    cdef public int32_t partition_count     # the count that producers must use; -1: the number here
    cdef public int32_t retired_from        # partitions from here on accept no records; -1: all do
    cdef public bint count_required         # a producer must send its count
    cdef public bint mirror                 # an exact copy: it accepts only Exact batches
    # The least id of producers here; smaller ids belong to the cluster that is or was copied.
    cdef public int64_t least_producer_id
