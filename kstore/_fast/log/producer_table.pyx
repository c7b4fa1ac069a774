# The producers of one log: the last five batches of each with their sequences, epochs, open
# transactions, and aborted transactions. Changes are staged while an append is analysed, and
# committed after its write. It has no file: pack() and unpack() are for kstore.log's snapshots.

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memmove

cimport cython

from kstore._fast.error_codes cimport (
    INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED)
from kstore._fast.record.batch cimport BatchInfo, is_transactional

import struct
from bisect import bisect_left

cdef enum:
    LAST_SEQUENCE = 0x7FFFFFFF
    NO_SEQUENCE = -1

_COUNTS = struct.Struct(">BII")
_ENTRY = struct.Struct(">qhiqqB")
_BATCH = struct.Struct(">iiqq")
_ABORTED = struct.Struct(">qqqq")
_SNAPSHOT_VERSION = 1


# Sequences wrap from 2^31 - 1 to 0.
cdef inline int32_t last_sequence_of(const BatchInfo* info) noexcept nogil:
    if info.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    if info.base_sequence > LAST_SEQUENCE - info.last_offset_delta:
        return info.last_offset_delta - (LAST_SEQUENCE - info.base_sequence) - 1
    return info.base_sequence + info.last_offset_delta


cdef inline int32_t base_sequence_of(const SequenceBatch* batch) noexcept nogil:
    if batch.last_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    if batch.last_sequence >= batch.offset_delta:
        return batch.last_sequence - batch.offset_delta
    return LAST_SEQUENCE - (batch.offset_delta - batch.last_sequence) + 1


# Each append makes one, and lets one go.
@cython.freelist(64)
@cython.no_gc
cdef class ProducerEntry:
    def __init__(self, int64_t producer_id):
        self.producer_id = producer_id
        self.key = producer_id
        self.producer_epoch = -1
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = -1

    cdef ProducerEntry copy(self):
        cdef ProducerEntry other = ProducerEntry.__new__(ProducerEntry)
        other.producer_id = self.producer_id
        other.key = self.key
        other.producer_epoch = self.producer_epoch
        other.coordinator_epoch = self.coordinator_epoch
        other.last_timestamp = self.last_timestamp
        other.txn_first_offset = self.txn_first_offset
        other.batches = self.batches
        other.count = self.count
        return other

    cdef SequenceBatch* find_duplicate(self, const BatchInfo* info) noexcept:
        cdef int32_t last = last_sequence_of(info)
        cdef int i
        if info.producer_epoch != self.producer_epoch or info.base_sequence == NO_SEQUENCE:
            return NULL
        for i in range(self.count):
            if self.batches[i].last_sequence == last \
                    and base_sequence_of(&self.batches[i]) == info.base_sequence:
                return &self.batches[i]
        return NULL

    cdef int16_t check_sequence(self, const BatchInfo* info) noexcept:
        cdef int32_t last
        if self.producer_epoch == -1:
            return 0                    # the producer is unknown: it may continue anywhere
        if info.producer_epoch != self.producer_epoch:
            return 0 if info.base_sequence == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER
        last = self.batches[self.count - 1].last_sequence if self.count else NO_SEQUENCE
        if <int64_t>info.base_sequence == <int64_t>last + 1:
            return 0
        if info.base_sequence == 0 and last == LAST_SEQUENCE:
            return 0
        return OUT_OF_ORDER_SEQUENCE_NUMBER

    cdef void begin_epoch(self, int16_t epoch) noexcept:
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.count = 0

    cdef void add_batch(self, const BatchInfo* info, int64_t base_offset) noexcept:
        cdef SequenceBatch* slot
        self.begin_epoch(info.producer_epoch)
        if self.count == REMEMBERED_BATCHES:
            memmove(&self.batches[0], &self.batches[1],
                    (REMEMBERED_BATCHES - 1) * sizeof(SequenceBatch))
            self.count -= 1
        slot = &self.batches[self.count]
        slot.last_sequence = last_sequence_of(info)
        slot.offset_delta = info.last_offset_delta
        slot.last_offset = base_offset + info.last_offset_delta
        slot.timestamp = info.max_timestamp
        self.count += 1
        self.last_timestamp = info.max_timestamp

    @property
    def last_sequence(self):
        return self.batches[self.count - 1].last_sequence if self.count else NO_SEQUENCE

    @property
    def last_offset(self):
        return self.batches[self.count - 1].last_offset if self.count else -1

    def __repr__(self):
        return (f"ProducerEntry(id {self.producer_id}, epoch {self.producer_epoch}, "
                f"last sequence {self.last_sequence}, transaction from {self.txn_first_offset})")


cdef class ProducerTable:
    def __init__(self):
        self.entries = {}
        self.ongoing = {}
        self.unreplicated = {}
        self.aborted = []
        self.staged = {}
        self.staged_ends = []
        self.staged_starts = []

    def __len__(self):
        return len(self.entries)

    cdef int stage(self, const BatchInfo* info, int64_t base_offset, bint check_client,
                   bint check_epoch,
                   const EndMarker* marker, int64_t* first, int64_t* last) except -1:
        cdef ProducerEntry entry
        cdef SequenceBatch* original
        cdef int16_t error
        cdef bint staged = True
        entry = self.find_staged(info.producer_id)
        if entry is None:
            staged = False
            entry = self.find(info.producer_id)
            entry = ProducerEntry(info.producer_id) if entry is None else entry.copy()
        if check_client:
            original = entry.find_duplicate(info)
            if original != NULL:
                last[0] = original.last_offset
                first[0] = original.last_offset - original.offset_delta
                return PRODUCER_DUPLICATE
        if check_epoch and info.producer_epoch < entry.producer_epoch:
            return INVALID_PRODUCER_EPOCH
        if marker != NULL:
            if check_epoch and marker.coordinator_epoch < entry.coordinator_epoch:
                return TRANSACTION_COORDINATOR_FENCED
            entry.begin_epoch(info.producer_epoch)
            entry.coordinator_epoch = marker.coordinator_epoch
            entry.last_timestamp = info.max_timestamp
            if entry.txn_first_offset >= 0:
                self.staged_ends.append((info.producer_id, entry.txn_first_offset,
                                         base_offset + info.last_offset_delta, bool(marker.commit)))
                entry.txn_first_offset = -1
        else:
            if check_client:
                error = entry.check_sequence(info)
                if error:
                    return error
            if entry.txn_first_offset >= 0 and not is_transactional(info) and check_epoch:
                return INVALID_TXN_STATE
            entry.add_batch(info, base_offset)
            if is_transactional(info) and entry.txn_first_offset < 0:
                entry.txn_first_offset = base_offset
                self.staged_starts.append((base_offset, info.producer_id))
        if staged:
            return PRODUCER_OK
        if self.staged_one is None:
            self.staged_one = entry
        else:
            self.staged[entry.key] = entry
        return PRODUCER_OK

    cdef ProducerEntry find_staged(self, int64_t producer_id):
        if self.staged_one is None:
            return None
        if self.staged_one.producer_id == producer_id:
            return self.staged_one
        return self.staged.get(producer_id) if self.staged else None

    cdef ProducerEntry find(self, int64_t producer_id):
        if self.latest is not None and self.latest.producer_id == producer_id:
            return self.latest
        return self.entries.get(producer_id)

    cdef bint repeats(self, const BatchInfo* info, int64_t* first, int64_t* last) except -1:
        cdef ProducerEntry known = self.find_staged(info.producer_id)
        cdef SequenceBatch* original
        if known is None:
            known = self.find(info.producer_id)
        if known is None:
            return False
        original = known.find_duplicate(info)
        if original == NULL:
            return False
        last[0] = original.last_offset
        first[0] = original.last_offset - original.offset_delta
        return True

    cdef int64_t original_time(self, const BatchInfo* info) except -2:
        cdef ProducerEntry known = self.find_staged(info.producer_id)
        cdef SequenceBatch* original
        if known is None:
            known = self.find(info.producer_id)
        if known is None:
            return -1
        original = known.find_duplicate(info)
        return -1 if original == NULL else original.timestamp

    cdef int commit(self) except -1:
        if self.staged_one is None:
            return 0
        self.any_seen = True
        self.entries[self.staged_one.key] = self.latest = self.staged_one
        self.staged_one = None
        if self.staged:
            self.entries.update(self.staged)
            self.staged.clear()
        if self.staged_starts or self.staged_ends:
            self._commit_transactions()
        return 0

    def _commit_transactions(self):
        for first, producer_id in self.staged_starts:
            self.ongoing[first] = producer_id
        for producer_id, first, last, committed in self.staged_ends:
            self.ongoing.pop(first, None)
            self.unreplicated[first] = last
            if not committed:
                stable = next(iter(self.ongoing), last + 1)
                self.aborted.append((last, first, producer_id, stable))
        self.staged_starts.clear()
        self.staged_ends.clear()

    cdef int forget_staged(self) except -1:
        self.staged_one = None
        if self.staged:
            self.staged.clear()
        if self.staged_starts:
            self.staged_starts.clear()
        if self.staged_ends:
            self.staged_ends.clear()
        return 0

    cdef int64_t first_unstable(self, int64_t high_watermark) except -2:
        cdef int64_t first = -1
        if self.unreplicated:
            for key in [key for key, end in self.unreplicated.items() if end < high_watermark]:
                del self.unreplicated[key]
            first = min(self.unreplicated, default=-1)
        if self.ongoing:
            start = next(iter(self.ongoing))
            if first < 0 or start < first:
                first = start
        return first

    def aborted_between(self, int64_t offset, int64_t upper):
        """(producer id, first offset) of aborted transactions that overlap [offset, upper)."""
        cdef list found = []
        for last, first, producer_id, stable in self.aborted[bisect_left(self.aborted, (offset,)):]:
            if first < upper:
                found.append((producer_id, first))
            if stable >= upper:
                break
        return found

    def drop_aborted_before(self, int64_t offset):
        self.aborted = self.aborted[bisect_left(self.aborted, (offset,)):]
        for first in [first for first, last in self.unreplicated.items() if last < offset]:
            del self.unreplicated[first]

    # By the time of its last batch's records, not by the time of the append, as in Kafka 4.3.1
    # (ProducerStateManager.isProducerExpired): so a snapshot is enough after a restart. A producer
    # of old records is forgotten at the next check, and is then new at any sequence.
    def expire(self, int64_t now_ms, int64_t expiration_ms):
        cdef ProducerEntry entry
        cdef list gone = []
        for producer_id, entry in self.entries.items():
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms:
                gone.append(producer_id)
        self.latest = None
        for producer_id in gone:
            del self.entries[producer_id]
        return len(gone)

    def clear(self):
        self.latest = None
        self.entries.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self.aborted = []
        self.forget_staged()

    def pack(self):
        cdef ProducerEntry entry
        cdef int i
        parts = [_COUNTS.pack(_SNAPSHOT_VERSION, len(self.entries), len(self.aborted))]
        for entry in self.entries.values():
            parts.append(_ENTRY.pack(entry.producer_id, entry.producer_epoch,
                                     entry.coordinator_epoch,
                                     entry.last_timestamp, entry.txn_first_offset, entry.count))
            for i in range(entry.count):
                parts.append(_BATCH.pack(entry.batches[i].last_sequence,
                                         entry.batches[i].offset_delta,
                                         entry.batches[i].last_offset, entry.batches[i].timestamp))
        parts += [_ABORTED.pack(*row) for row in self.aborted]
        return b"".join(parts)

    def unpack(self, bytes data not None):
        cdef ProducerEntry entry
        cdef int i
        self.clear()
        version, entries, aborted = _COUNTS.unpack_from(data, 0)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"producer snapshot has version {version}, not {_SNAPSHOT_VERSION}")
        at = _COUNTS.size
        for _ in range(entries):
            row = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            entry = ProducerEntry(row[0])
            entry.producer_epoch, entry.coordinator_epoch = row[1], row[2]
            entry.last_timestamp, entry.txn_first_offset, entry.count = row[3], row[4], row[5]
            if entry.count > REMEMBERED_BATCHES:
                raise ValueError(f"producer snapshot has {entry.count} batches of one producer")
            for i in range(entry.count):
                batch = _BATCH.unpack_from(data, at)
                at += _BATCH.size
                entry.batches[i].last_sequence, entry.batches[i].offset_delta = batch[0], batch[1]
                entry.batches[i].last_offset, entry.batches[i].timestamp = batch[2], batch[3]
            self.entries[entry.producer_id] = entry
        self.aborted = [_ABORTED.unpack_from(data, at + i * _ABORTED.size) for i in range(aborted)]
        self.ongoing = dict(sorted((e.txn_first_offset, e.producer_id)
                                   for e in self.entries.values()
                                   if e.txn_first_offset >= 0))
        self.any_seen = entries > 0
