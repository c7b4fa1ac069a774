"""The records of one share-partition that are in flight (KIP-932): acquired, acknowledged in ranges
or one by one, released, or archived. An array of runs has the state of each offset from the start
offset to the end offset. There is no Python object per offset.

A change that must be stored has a token until then: its records can be neither acquired nor
acknowledged. commit() or roll_back() ends it. Times and limits are arguments.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kstore._fast.error_codes cimport INVALID_RECORD_STATE, INVALID_REQUEST
from kstore._fast.record.memory cimport view_of
from kstore._fast.shares.batch_headers cimport BatchHeaders
from kstore._fast.shares.runs cimport (
    ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, Run, Runs, is_complete,
)


cdef enum:
    ACCEPT = 1
    RELEASE = 2
    RENEW = 4
    MIN_THROTTLED = 2               # deliveries

cdef class InFlightRecords(Runs):
    """The records in flight, from ``start_offset`` to ``end_offset``, both included. If there are
    none, the end offset is the start offset - 1.
    """

    # -- what there is

    def next_fetch_offset(self):
        """The first offset that can be acquired, if it exists."""
        cdef Py_ssize_t i
        for i in range(self.size):
            if self.runs[i].state == AVAILABLE and self.runs[i].token == 0:
                return self.runs[i].first
        return self.end_offset + 1

    def next_deadline(self):
        """When the first acquisition lock expires; -1 if there is none."""
        cdef Py_ssize_t i
        cdef int64_t earliest = -1
        for i in range(self.size):
            if self.runs[i].state == ACQUIRED and (
                earliest < 0 or self.runs[i].deadline < earliest
            ):
                earliest = self.runs[i].deadline
        return earliest

    def count(self):
        """The number of records in flight: neither acknowledged nor archived."""
        return self.open_count()

    cdef int64_t open_count(self) noexcept:
        cdef Py_ssize_t i
        cdef int64_t found = 0
        for i in range(self.size):
            if not is_complete(&self.runs[i], 0):
                found += self.runs[i].last - self.runs[i].first + 1
        return found

    # -- acquiring

    def acquire(
        self, int64_t owner, data, int64_t fetch_offset, *, int64_t deadline, int64_t max_records,
        int64_t batch_size, int64_t max_in_flight, int32_t max_deliveries, bint record_limit=False,
        aborted=(),
    ):
        """Acquire records of the complete batches ``data``, which were read at ``fetch_offset``,
        until the deadline. Returns [(first offset, last offset, deliveries)].

        Without ``record_limit`` a range ends with a batch, even if it is then longer than
        ``max_records``; new ranges of more than ``batch_size`` are split between batches. Offsets
        that the log no longer has, and batches of aborted transactions, are archived. ``aborted``:
        [(producer id, first offset, last offset)].
        """
        cdef BatchHeaders batches = BatchHeaders(view_of(data))
        cdef Acquiring to = Acquiring()
        cdef int64_t new_first, new_last, most
        if not batches.read():
            return []
        if batches.base > fetch_offset:
            self.skip(fetch_offset, batches.base - 1)
        to.owner, to.deadline = owner, deadline
        to.record_limit, to.max_records, to.acquired = record_limit, max_records, 0
        to.max_deliveries = max_deliveries
        to.first, to.last = max(batches.base, fetch_offset), batches.end_offset()
        to.rows = []
        to.batches = batches
        to.ended = False
        self.acquire_again(to)
        if not to.ended and to.acquired < max_records and to.last > self.end_offset:
            most = min(max_records - to.acquired, max_in_flight - self.open_count())
            new_first = max(self.end_offset + 1, to.first)
            if most > 0 and new_first <= to.last:
                self.skip(self.end_offset + 1, new_first - 1)
                new_last = to.up_to(new_first, to.last, most)
                self.acquire_new(to, new_last, batch_size)
        if aborted and to.rows:
            self.archive_aborted(to, batches.aborted_of(aborted))
        if self.size and is_complete(&self.runs[0], 0):
            self.compact()
        return to.rows

    cdef int acquire_again(self, Acquiring to) except -1:
        """Acquire records that were delivered before or skipped."""
        cdef Py_ssize_t i
        cdef Run* run
        cdef int64_t first, last, left = 0, batch = -1
        cdef int32_t throttled_from = max(MIN_THROTTLED, (to.max_deliveries + 1) // 2)
        cdef bint throttled = False
        if to.first > self.end_offset or self.size == 0:
            return 0
        i = self.find(to.first)
        while i < self.size and self.runs[i].first <= to.last and to.acquired < to.max_records:
            run = &self.runs[i]
            if run.state != AVAILABLE or run.token != 0:
                i += 1
                continue
            first, last = max(run.first, to.first), min(run.last, to.last)
            if to.max_deliveries > 2 and run.deliveries >= throttled_from or throttled:
                # A bad record must not use up its neighbours' tries: deliver fewer at a time, in
                # the end one.
                if not throttled:
                    if to.acquired:
                        break
                    throttled, batch = True, run.batch
                    left = max(1, run.batch_size >> (run.deliveries - throttled_from + 1))
                    if to.record_limit:
                        left = min(left, to.max_records)
                if run.batch != batch:
                    break
                if run.deliveries == to.max_deliveries - 1:
                    if to.acquired:
                        break
                    left = 1
                last = min(last, first + left - 1)
                left -= last - first + 1
            else:
                last = to.up_to(first, last, to.max_records - to.acquired)
            i = self.isolate(i, first, last)
            run = &self.runs[i]
            run.state, run.owner, run.deadline = ACQUIRED, to.owner, to.deadline
            run.deliveries += 1
            to.rows.append((first, last, run.deliveries))
            to.acquired += last - first + 1
            if throttled and left == 0:
                break
            i += 1
        else:
            to.ended = throttled
            return 0
        to.ended = True
        return 0

    cdef int acquire_new(self, Acquiring to, int64_t last, int64_t batch_size) except -1:
        """Acquire everything up to an offset, which was never acquired before."""
        cdef int64_t first = self.end_offset + 1
        cdef Run* run = self.append(last, ACQUIRED, 1)
        run.owner, run.deadline = to.owner, to.deadline
        to.acquired += last - first + 1
        if not to.record_limit and last - first + 1 > batch_size:
            to.batches.rewind()
            while to.batches.read() and to.batches.base <= last:
                if to.batches.base - first >= batch_size:
                    to.rows.append((first, to.batches.base - 1, 1))
                    first = to.batches.base
        to.rows.append((first, last, 1))
        return 0

    cdef int archive_aborted(self, Acquiring to, list ranges) except -1:
        """Archive records of aborted transactions that were just acquired."""
        cdef int64_t first, last, from_, upto
        kept = []
        for first, last, deliveries in to.rows:
            for from_, upto in ranges:
                if upto < first or from_ > last:
                    continue
                if from_ > first:
                    kept.append((first, from_ - 1, deliveries))
                self.archive(max(from_, first), min(upto, last), ACQUIRED)
                first = upto + 1
                if first > last:
                    break
            if first <= last:
                kept.append((first, last, deliveries))
        to.rows = kept
        self.compact()
        return 0

    cdef int skip(self, int64_t first, int64_t last) except -1:
        """The log has none of these offsets."""
        if last < first:
            return 0
        if first <= self.end_offset:
            self.archive(first, min(last, self.end_offset), AVAILABLE)
        if last > self.end_offset:
            if self.size:
                self.append(last, ARCHIVED, 0)
            else:
                self.start_offset, self.end_offset = last + 1, last
        return 0

    cdef int archive(self, int64_t first, int64_t last, int8_t state) except -1:
        """Archive the records in this state among these offsets, which are in flight."""
        cdef Py_ssize_t i = self.find(first)
        cdef Run* run
        while i < self.size and self.runs[i].first <= last:
            run = &self.runs[i]
            if run.state == state and run.token == 0:
                i = self.isolate(i, max(run.first, first), min(run.last, last))
                self.runs[i].state = ARCHIVED
            i += 1
        return 0

    # -- acknowledging

    def acknowledge(
        self, int64_t owner, batches, int32_t token, *, int32_t max_deliveries, int64_t deadline
    ):
        """Acknowledge ranges ``[(first offset, last offset, bytes of types)]``, ascending and
        separate; a single type is for the whole range. Returns the error code; after an error
        nothing has changed.

        ``deadline``: the new deadline of renewed records, which need no token. Offsets below the
        start offset are ignored.
        """
        cdef int64_t first, last
        cdef bytes types
        cdef int16_t error
        for first, last, types in batches:
            error = self.check(owner, max(first, self.start_offset), last)
            if error:
                return error
        for first, last, types in batches:
            if last >= self.start_offset:
                self.apply(first, last, types, token, max_deliveries, deadline)
        return 0

    cdef int16_t check(self, int64_t owner, int64_t first, int64_t last) except -1:
        """Whether a member may acknowledge a range."""
        cdef Py_ssize_t i
        cdef Run* run
        if last < self.start_offset:
            return 0
        if self.size == 0:
            return INVALID_RECORD_STATE
        if last > self.end_offset:
            return INVALID_REQUEST
        i = self.find(first)
        while i < self.size and self.runs[i].first <= last:
            run = &self.runs[i]
            if run.state != ACQUIRED or run.owner != owner or run.token != 0:
                return INVALID_RECORD_STATE
            i += 1
        return 0

    cdef int apply(
        self, int64_t first, int64_t last, bytes types, int32_t token, int32_t max_deliveries,
        int64_t deadline,
    ) except -1:
        cdef int64_t at = max(first, self.start_offset), upto
        cdef Py_ssize_t count = len(types)
        cdef const uint8_t* kinds = types
        cdef uint8_t kind
        while at <= last:
            upto = last
            kind = kinds[0]
            if count > 1:
                kind = kinds[at - first]
                upto = at
                while upto < last and kinds[upto + 1 - first] == kind:
                    upto += 1
            self.apply_one(at, upto, kind, token, max_deliveries, deadline)
            at = upto + 1
        return 0

    cdef int apply_one(
        self, int64_t first, int64_t last, uint8_t kind, int32_t token, int32_t max_deliveries,
        int64_t deadline,
    ) except -1:
        cdef Py_ssize_t i = self.find(first)
        cdef Run* run
        while i < self.size and self.runs[i].first <= last:
            run = &self.runs[i]
            i = self.isolate(i, max(run.first, first), min(run.last, last))
            run = &self.runs[i]
            if kind == RENEW:
                run.deadline = deadline
            else:
                run.token = token
                run.state = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
                if kind == RELEASE and run.deliveries < max_deliveries:
                    run.state = AVAILABLE
            i += 1
        return 0

    def release(self, int64_t owner, int32_t token, *, int32_t max_deliveries):
        """Release all records that a member has acquired; returns whether there were any."""
        cdef Py_ssize_t i
        cdef Run* run
        cdef bint found = False
        for i in range(self.size):
            run = &self.runs[i]
            if run.state == ACQUIRED and run.owner == owner:
                end_lock(run, token, max_deliveries)
                found = True
        return found

    def expire(self, int64_t now, int32_t token, *, int32_t max_deliveries):
        """Release records whose locks have expired; returns their number."""
        cdef Py_ssize_t i
        cdef Run* run
        cdef int64_t found = 0
        for i in range(self.size):
            run = &self.runs[i]
            if run.state == ACQUIRED and run.deadline <= now:
                found += run.last - run.first + 1
                end_lock(run, token, max_deliveries)
        return found

    # -- storing changes

    def changes(self, int32_t token):
        """[(first offset, last offset, state, deliveries)]: a token's changes from
        start_after() on.
        """
        cdef Py_ssize_t i
        cdef Run* run
        cdef int64_t start = self.start_of(token)
        found = []
        first = last = state = deliveries = -1
        for i in range(self.size):
            run = &self.runs[i]
            if run.token != token or run.last < start:
                continue
            if (last, state, deliveries) == (run.first - 1, run.state, run.deliveries):
                found.pop()
                found.append((first, run.last, state, deliveries))
            else:
                first, state, deliveries = run.first, run.state, run.deliveries
                found.append((first, run.last, state, deliveries))
            last = run.last
        return found

    def start_after(self, int32_t token):
        """The start offset after a token is committed."""
        return self.start_of(token)

    def complete_after(self, int32_t token):
        """The number of offsets from start_after() on that are then acknowledged or archived."""
        cdef Py_ssize_t i
        cdef int64_t found = 0, start = self.start_of(token)
        for i in range(self.size):
            if self.runs[i].first >= start and is_complete(&self.runs[i], token):
                found += self.runs[i].last - self.runs[i].first + 1
        return found


cdef class Acquiring:
    """One acquisition."""

    cdef int64_t owner, deadline, first, last, max_records, acquired
    cdef int32_t max_deliveries
    cdef bint record_limit, ended
    cdef list rows
    cdef BatchHeaders batches

    cdef int64_t up_to(self, int64_t first, int64_t last, int64_t most) except -2:
        """The end of a range of at most this many records."""
        cdef int64_t wanted = first + most - 1
        if wanted >= last:
            return last
        return wanted if self.record_limit else min(self.batches.last_of(wanted), last)


cdef inline void end_lock(Run* run, int32_t token, int32_t max_deliveries) noexcept:
    run.state = AVAILABLE if run.deliveries < max_deliveries else ARCHIVED
    run.token = token
    run.lasts = True
