# The partitions that this broker knows, as the data plane looks them up: by topic name or id, then
# by index.
# A table holds no file and decides nothing about who leads: kstore/broker/runtime fills it.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.record.unpack cimport Verdict
from kstore._fast.broker.replica_state cimport Follower, ReplicaState, ReplicationContext

# Whoever waits for a partition to grow (a parked fetch). check() is called on the loop, once per
# wake.
cdef class Waiter:
    cdef int check(self) except -1

cdef class PartitionTable

cdef class Partition:
    cdef readonly TopicEntry entry
    cdef readonly int32_t index
    cdef readonly object log                # kstore.log's Log, None while the partition is not here
    cdef LogCore core
    cdef public int32_t leader_epoch
    cdef public int32_t leader_id
    cdef public int32_t partition_epoch     # KIP-232; -1: it has none
    cdef public bint online                 # this broker leads it and its log is open
    cdef readonly bint deleted
    cdef readonly bint follows              # it has a replica here, led elsewhere
    cdef readonly ReplicaState replication  # None: not led here, or the only replica
    cdef readonly tuple replicas            # node ids, this broker included
    cdef readonly tuple isr                 # that the controller knows
    cdef readonly int32_t isr_version       # of the state that says so
    cdef readonly tuple proposed_isr        # that the controller is asked for; None: none
    cdef PartitionTable table
    cdef dict waiters                       # Waiter -> None, in order of arrival
    cdef bint woken
    # As a follower: the leader's high watermark, as far as the log went when it was told.
    cdef int64_t heard_high_watermark
    cdef readonly int stored_codec          # what client batches are stored in; -1: as they come
    cdef readonly int stored_level          # of that codec; -1: its own default
    cdef public int32_t insync_replicas     # how many there are
    cdef readonly int32_t min_insync_replicas   # how many a write with acks=all needs
    cdef int append(self, uint8_t* data, Py_ssize_t size, int origin, AppendResult* out) except -1
    # the same; a thread has looked into the batch, or has not and says how much is done here
    cdef int append_seen(
        self, uint8_t* data, Py_ssize_t size, int origin, Verdict seen, AppendResult* out
    ) except -1
    cdef int listen(self) except -1
    cdef int show_durable(self) except -1
    cdef int wake(self) except -1
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
    cdef public int32_t partition_count     # what producers have to know; -1: as many as are here
    cdef public bint count_required         # a producer has to say its count

cdef class PartitionTable:
    cdef dict by_name
    cdef dict by_id
    cdef readonly int32_t node_id
    cdef object call_soon
    cdef readonly ReplicationContext replication
    cdef public object on_isr_change        # callable(partition, ISR to be proposed), or None
    # callable(node id, listener) -> bytes of a NodeEndpoint, or None; None: nobody is told
    cdef public object node_endpoint
    cdef public bint rack_aware             # consumers are sent to a replica of their rack
    # Fetches of followers that wait, for whatever is new: each has parts of most partitions, and
    # finds those that have changed quicker than it could wait for each of them.
    cdef dict followers                     # Waiter -> None
    cdef bint followers_woken
    cdef list woken
    cdef bint scheduled
    # callable([(log, end offset)]): have it on the disk soon; None: nobody does
    cdef public object on_unsynced
    cdef public object call_threadsafe      # call_soon, from other threads
    cdef dict unsynced                      # Partition -> None: grown, with flush=always
    cdef list synced                        # partitions of which more is on the disk
    cdef bint synced_scheduled
    cdef TopicEntry last                    # of the last look-up by name
    cdef TopicEntry find_name(self, const uint8_t* name, Py_ssize_t size)
    cdef TopicEntry find_id(self, const uint8_t* topic_id)
    cdef int schedule(self, Partition partition) except -1
    cdef int schedule_followers(self) except -1
    cdef int wake_soon(self) except -1
    cdef int sync_soon(self, Partition partition) except -1
