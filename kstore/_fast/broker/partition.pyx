"""One partition, for Produce and Fetch: its leader, its followers and ISR, its high watermark, and
the requests that wait for it to grow.

It opens no log and elects no leader: kstore.broker.runtime sets the leader. Everything runs on the
loop, except `note_durable`.
"""

from libc.stdint cimport int16_t

from kstore._fast.broker.partition_events cimport Waiter
from kstore._fast.broker.replica_state cimport CommitWait
from kstore._fast.error_codes cimport NONE, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER
from kstore._fast.log.append_plan cimport ORIGIN_COORDINATOR
from kstore._fast.log.append_queue cimport AppendQueue
from kstore._fast.record.batch cimport BATCH_OK, BatchInfo, read_batch_header
from kstore._fast.record.memory cimport MemoryView, view_of


cdef class TopicEntry:
    """One topic: its name, id and partitions by index (None where this broker has none)."""

    def __init__(self, bytes name, bytes topic_id, *, bint internal=False):
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        self.name = name
        self.topic_id = topic_id
        self.internal = internal
        self.partitions = []
        self.counts = TopicCounts()
        self.partition_count = self.retired_from = -1


cdef class CallbackWait(CommitWait):
    """A callback for when the high watermark reaches an offset."""

    cdef object callback
    cdef object call_soon

    cdef int answer(self, int16_t error) except -1:
        # Not called from here: it may append, and its exceptions are not the follower's fault.
        self.call_soon(self.callback, error)
        return 0


cdef class PartitionJob(CallbackJob):
    """An append to a partition, with a callback."""

    cdef int ended(self) except -1:
        return self.partition.end_append(self)


cdef class Partition(Wakeable):
    """One partition for the data plane: its log's core, its leader and the requests that
    wait for it. For a partition without a replica here the table has only the leader (log
    None).
    """

    def __init__(
        self, TopicEntry entry, int index, log, *, int leader_id, int leader_epoch=0,
        int partition_epoch=-1
    ):
        self.entry = entry
        self.index = index
        self.log = log
        self.core = None if log is None else log.core
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.online = log is not None
        self.waiters = {}
        self.replicas = self.isr = (leader_id,)
        self.stored_codec = self.stored_level = -1
        self.insync_replicas = self.min_insync_replicas = 1
        self.heard_high_watermark = -1
        self.listen()

    cdef int listen(self) except -1:
        if self.core is not None and self.core.shows_durable:
            self.log.on_durable = self.note_durable
        return 0

    def note_durable(self):
        """More of the log is durable, and may become visible. Any thread may call it."""
        if self.events is not None:
            self.events.note_durable(self)

    cdef int show_durable(self) except -1:
        if self.core is None:
            return 0
        if self.replication is not None:
            self.moved()
        elif self.follows:
            self.take_high_watermark(self.heard_high_watermark)
        elif self.waiters:
            self.events.schedule(self)
        return 0

    cdef int append(self, uint8_t* data, Py_ssize_t size, int origin, AppendResult* out) except -1:
        return self.append_seen(data, size, origin, None, out)

    cdef int append_seen(
        self, uint8_t* data, Py_ssize_t size, int origin, Verdict seen, AppendResult* out
    ) except -1:
        try:
            self.core.append_seen(data, size, self.leader_epoch, origin, seen, out)
        except OSError as problem:
            self.note_error(problem)
            self.resign()
            raise
        if out.error_code != NONE or out.duplicate:
            return 0
        return self.note_grown(out.end_before)

    cdef int end_append(self, AppendJob job) except -1:
        if self.core is not job.core:
            return 0
        if job.problem is not None:
            self.note_error(job.problem)
            self.resign()
        elif job.result.error_code == NONE and not job.result.duplicate:
            return self.note_grown(job.result.end_before)
        return 0

    cdef int note_error(self, problem) except -1:
        """Tell the log dir how its disk behaved."""
        self.log.log_dir.note_error(problem)
        return 0

    cdef int note_grown(self, int64_t end_before) except -1:
        """The log has grown beyond this end: wake the waiters."""
        if self.core.shows_durable:
            self.events.sync_soon(self)
        if self.replication is None:
            if self.waiters and not self.core.shows_durable:
                self.events.schedule(self)
            return 0
        self.replication.note_append(end_before)
        self.events.schedule_followers()
        if self.replication.alone:
            self.moved()
        return 0

    def configure(self, *, int stored_codec, int stored_level, int min_insync_replicas):
        """Store client batches with a codec (-1: unchanged), and require so many in-sync replicas
        for acks=all writes.
        """
        self.stored_codec = stored_codec
        self.stored_level = stored_level
        self.min_insync_replicas = min_insync_replicas
        if self.replication is not None:
            self.replication.min_insync_replicas = min_insync_replicas
            self.moved()

    cdef int wake(self) except -1:
        cdef Waiter waiter
        self.woken = False
        for waiter in list(self.waiters):
            waiter.check()
        return 0

    def notify(self):
        """Wake the requests that wait for this partition: something visible has changed."""
        if self.events is not None:
            self.events.schedule_followers()
            if self.waiters:
                self.events.schedule(self)

    # -- leading and following

    def lead(
        self, int32_t leader_epoch, int32_t state_version, tuple replicas not None,
        tuple isr not None, now_ms=None
    ):
        """Lead the partition from now on, or continue to lead it in another epoch or with other
        replicas. `now_ms` is not needed: the table has the clock.
        """
        if self.replication is not None and (leader_epoch, state_version) == (
                self.leader_epoch, self.isr_version):
            return                                  # it is known; a proposal may be pending
        self.leader_id = self.events.node_id
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.isr_version = state_version
        self.proposed_isr = None
        self.insync_replicas = <int32_t>len(isr)
        self.online = True
        if self.follows:
            self.core.refuse_queued()               # sent by its previous leader
        self.follows = False
        if len(replicas) > 1:
            if self.replication is None:
                self.replication = ReplicaState(self.core, self.events.replication)
            self.core.follows_end = False
            self.replication.min_insync_replicas = self.min_insync_replicas
            self.replication.set_replicas(self.events.node_id, replicas, isr)
            if self.core.shows_durable and self.core.durable_offset < self.core.log_end_offset:
                self.events.sync_soon(self)          # left by the previous one
            self.replication.advance(self.events.replication.now_ms())
        else:
            self.core.follows_end = True
            self.core.note_end()
            if self.replication is not None:
                self.replication.release()
                self.replication = None
        self.notify()

    def follow(self, int32_t leader_id, int32_t leader_epoch):
        """Another broker leads (-1: none does): requests that wait for this leader's followers, and
        followers that wait here, get an error.
        """
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.online = False
        self.heard_high_watermark = -1
        self.follows = self.core is not None
        if self.core is not None:
            self.core.follows_end = False
        self.end_leadership()

    def end_leadership(self):
        """Answer all waiting requests: this broker no longer leads the partition."""
        replication, self.replication = self.replication, None
        self.proposed_isr = None
        if self.core is not None:
            self.core.refuse_queued()
        if replication is not None:
            (<ReplicaState>replication).fail(NOT_LEADER_OR_FOLLOWER)
        self.notify()

    cdef int moved(self) except -1:
        """Something that the high watermark depends on has changed."""
        if self.replication.advance(self.events.replication.now_ms()):
            self.tell_high_watermark()
        return 0

    cdef int tell_high_watermark(self) except -1:
        """Wake its readers; followers only if consumers read from them (KIP-392), since others
        learn it soon enough.
        """
        if self.waiters:
            self.events.schedule(self)
        if self.events.rack_aware:
            self.events.schedule_followers()
        return 0

    def advance(self):
        """Advance the high watermark as far as the replicas allow: brokers have joined or left."""
        if self.replication is not None:
            self.moved()

    def take_high_watermark(self, int64_t offset):
        """A follower learns the leader's high watermark, limited to its own log end. It never
        decreases.
        """
        if self.core is None:
            return
        self.heard_high_watermark = min(offset, self.core.log_end_offset)
        offset = min(offset, self.core.visible_end())
        if offset > self.core.high_watermark:
            self.core.high_watermark = offset
            self.core.note_end()
            self.tell_high_watermark()

    def when_committed(self, int64_t end_offset, callback):
        """Call ``callback(error code)`` on the loop when the high watermark reaches the offset (0;
        at once if it has), or when this broker no longer leads (NOT_LEADER_OR_FOLLOWER).
        """
        cdef CallbackWait wait
        if not self.online:
            callback(NOT_LEADER_OR_FOLLOWER)
        elif end_offset <= self.core.high_watermark:
            callback(NONE)
        elif self.replication is None:
            raise ValueError(f"the log ends at {self.core.log_end_offset}, before {end_offset}")
        else:
            wait = CallbackWait()
            wait.end_offset = end_offset
            wait.callback = callback
            wait.call_soon = self.events.call_soon
            self.replication.add_wait(wait)

    # -- the ISR

    cdef Follower admit_follower(self, int32_t node_id, int64_t broker_epoch):
        """The follower that fetches; None if the broker is no replica, or its broker epoch is old
        (KIP-903).
        """
        cdef Follower follower
        if self.replication is None:
            return None
        follower = self.replication.find(node_id)
        if follower is None or self.events.replication.is_stale(node_id, broker_epoch):
            return None
        if broker_epoch >= 0:
            if broker_epoch < follower.broker_epoch:
                return None
            follower.broker_epoch = broker_epoch
        return follower

    cdef int note_fetch(
        self, Follower follower, int64_t fetch_offset, int64_t log_start_offset, int64_t now_ms
    ) except -1:
        """A follower has all below the offset: it may join the ISR, the high watermark may move."""
        cdef ReplicaState replication = self.replication
        cdef bint news
        fetch_offset = self.core.reached_by(fetch_offset)
        news = follower.log_end_offset != fetch_offset
        replication.note_fetch(follower, fetch_offset, log_start_offset, now_ms)
        if not (follower.in_isr or follower.proposed):
            if self.proposed_isr is None and replication.may_join(follower):
                self.propose_isr(self.isr + (follower.node_id,))
        if news and replication.advance(now_ms):
            self.tell_high_watermark()
        return 0

    def propose_isr(self, tuple isr not None):
        """Propose another ISR; until it is accepted or refused, the high watermark waits for all
        replicas of both (KIP-497). Returns False if a proposal is pending: one at a time.
        """
        if self.proposed_isr is not None or self.replication is None \
                or self.events.on_isr_change is None:
            return False
        self.proposed_isr = isr
        self.replication.set_isr(self.isr, isr)
        self.events.on_isr_change(self, isr)
        return True

    def resign(self):
        """This broker can't write: let the controller choose a leader among the others in sync.

        No effect if there are none, or if a proposal is pending: the next failing append calls
        this again.
        """
        others = tuple([each for each in self.isr if each != self.leader_id])
        if self.replication is not None and others:
            self.propose_isr(others)

    def isr_applied(self, tuple isr not None, int32_t state_version, int32_t leader_epoch):
        """The controller has written an ISR; an older or another epoch's is ignored (False)."""
        if not self.online or leader_epoch != self.leader_epoch \
                or state_version <= self.isr_version:
            return False
        self.events.note_isr(len(self.isr), len(isr))
        self.isr = isr
        self.isr_version = state_version
        self.insync_replicas = <int32_t>len(isr)
        self.proposed_isr = None
        if self.replication is not None:
            self.replication.set_isr(isr, None)
            self.moved()
        return True

    def isr_refused(self):
        """The proposal was lost or refused: the ISR does not change."""
        self.events.isr_refusals += 1
        self.proposed_isr = None
        if self.replication is not None:
            self.replication.set_isr(self.isr, None)
            self.moved()

    def shrink_candidates(self, int64_t now_ms, int64_t max_lag_ms):
        """Followers in the ISR that have lagged for too long, if no proposal is pending.
        `now_ms` is on the scale of the table's replication.now_ms().
        """
        cdef Follower follower
        if self.replication is None or self.proposed_isr is not None:
            return []
        return [
            follower.node_id for follower in self.replication.followers
            if follower.in_isr and follower.log_end_offset != self.core.log_end_offset
            and now_ms - follower.last_caught_up_ms > max_lag_ms
        ]

    def end_offset_for_epoch(self, int32_t epoch):
        """(largest epoch not above the requested one, its end offset), for a leader: its own epoch,
        and epochs without a record here, end at the log's end. (-1, -1): unknown.
        """
        cdef int32_t latest
        if self.core is None:
            return -1, -1
        latest = self.core.epochs.latest_epoch
        if epoch == self.leader_epoch and epoch >= latest:
            return epoch, self.core.log_end_offset
        if latest < epoch <= self.leader_epoch:
            return (epoch if latest < 0 else latest), self.core.log_end_offset
        return self.core.epochs.end_offset_for(epoch, self.core.log_end_offset)

    def append_batches(self, data, *, int origin=ORIGIN_COORDINATOR):
        """Append ready batches and wake waiting requests; a read-only buffer is copied first.

        Returns (error code, base offset, last offset, log end offset). Raises only OSError.
        """
        cdef MemoryView view
        cdef AppendResult result
        if self.core is None:
            return NOT_LEADER_OR_FOLLOWER, -1, -1, -1
        if origin == ORIGIN_COORDINATOR and self.insync_replicas < self.min_insync_replicas:
            return NOT_ENOUGH_REPLICAS, -1, -1, self.core.log_end_offset
        if memoryview(data).readonly:
            data = bytearray(data)
        view = view_of(data, True)
        self.append(view.data, view.size, origin, &result)
        return result.error_code, result.base_offset, result.last_offset, result.log_end_offset

    def may_append_now(self, bytes data not None):
        """Whether the loop may append these batches, because nothing has to wait."""
        return self.core is None or bool(self.core.may_append_now(
            <const uint8_t*><const char*>data, len(data), False))

    def append_later(self, data not None, callback, *, int origin=ORIGIN_COORDINATOR):
        """Have a thread append ready batches: bytes, or a bytearray or NestedBatches that must not
        change any more; ``callback(job)`` is called at the end.

        Returns (error code, the base offset if all earlier appends succeed). After an error
        nothing is appended, and there is no callback.
        """
        cdef PartitionJob job
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef BatchInfo info
        if self.core is None:
            return NOT_LEADER_OR_FOLLOWER, -1
        if origin == ORIGIN_COORDINATOR and self.insync_replicas < self.min_insync_replicas:
            return NOT_ENOUGH_REPLICAS, -1
        job = PartitionJob.__new__(PartitionJob)
        job.partition, job.core = self, self.core
        job.take(data)
        job.leader_epoch, job.origin = self.leader_epoch, origin
        job.callback = callback
        if self.core.queued == 0 or self.core.given != self.planned_job or \
                self.core.term != self.planned_term:    # others are in the log, or are refused
            self.expected_end = self.core.log_end_offset
        cdef int64_t base = self.expected_end
        at = job.data
        end = at + job.size
        while at < end and read_batch_header(at, end, &info) == BATCH_OK:
            self.expected_end += info.last_offset_delta + 1
            at += info.size_bytes
        (<AppendQueue>self.core.appends).submit(job)
        self.planned_job, self.planned_term = job.number, job.term
        return NONE, base

    @property
    def appends_queued(self):
        """The number of appends that threads have not finished."""
        return 0 if self.core is None else self.core.queued

    def fail(self):
        """Its log dir has failed: it has no log any more; waiting requests get an error."""
        self.failed = True
        self.follow(-1, self.leader_epoch)
        self.replace_log(None)

    def replace_log(self, log):
        """Serve the partition from another log with the same records, from a log that has moved
        here, or from none (None): this broker has no replica any more.
        """
        cdef LogCore old = self.core
        if self.core is not None and self.core.shows_durable:
            self.log.on_durable = None
        self.log = log
        self.core = None if log is None else log.core
        self.listen()
        if log is None:
            self.online = self.follows = False
            return
        self.failed = False
        if old is not None:
            self.core.follows_end = old.follows_end
            self.core.high_watermark = max(
                self.core.high_watermark, min(old.high_watermark, self.core.visible_end()))
            self.core.note_end()
        if self.replication is not None:
            self.replication.core = self.core

    @property
    def log_start_offset(self):
        """The log start offset."""
        return -1 if self.core is None else self.core.log_start_offset

    @property
    def log_end_offset(self):
        """The log end offset."""
        return -1 if self.core is None else self.core.log_end_offset

    @property
    def high_watermark(self):
        """The offset below which a consumer reads."""
        return -1 if self.core is None else self.core.high_watermark

    @property
    def last_stable_offset(self):
        """The offset below which a read_committed consumer reads."""
        return -1 if self.core is None else self.core.last_stable_offset

    @property
    def waiting(self):
        """The number of fetches that wait for this partition; followers wait for all."""
        return len(self.waiters)
