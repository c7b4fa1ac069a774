# The producers of one log: sequences, epochs, transactions.

from libc.stdint cimport int16_t, int32_t, int64_t

from kstore._fast.record.batch cimport BatchInfo

cdef enum:
    REMEMBERED_BATCHES = 5

cdef enum ProducerCheck:                # in addition to Kafka's error codes, which are positive
    PRODUCER_OK = 0
    PRODUCER_DUPLICATE = -2

cdef struct SequenceBatch:
    int32_t last_sequence
    int32_t offset_delta
    int64_t last_offset
    int64_t timestamp

# The content of a control batch.
cdef struct EndMarker:
    bint commit
    int32_t coordinator_epoch

cdef class ProducerEntry:
    cdef readonly int64_t producer_id
    cdef object key                         # the id, as the key in `entries`
    cdef readonly int16_t producer_epoch    # -1: none yet
    cdef readonly int32_t coordinator_epoch
    cdef readonly int64_t last_timestamp
    cdef readonly int64_t txn_first_offset  # -1: no open transaction
    cdef SequenceBatch[REMEMBERED_BATCHES] batches      # oldest first
    cdef int count
    cdef ProducerEntry copy(self)
    cdef SequenceBatch* find_duplicate(self, const BatchInfo* info) noexcept
    cdef int16_t check_sequence(self, const BatchInfo* info) noexcept
    cdef void begin_epoch(self, int16_t epoch) noexcept
    cdef void add_batch(self, const BatchInfo* info, int64_t base_offset) noexcept

cdef class ProducerTable:
    cdef readonly dict entries              # producer id -> ProducerEntry
    cdef readonly dict ongoing              # first offset -> producer id, ascending
    cdef dict unreplicated                  # first offset -> last offset of completed transactions
    # (last offset, first offset, producer id, stable offset)
    cdef readonly list aborted
    cdef ProducerEntry latest               # the entry in `entries` that was committed last
    cdef ProducerEntry staged_one           # the first staged producer; usually the only one
    cdef dict staged                        # the other staged producers
    cdef list staged_ends                   # (producer id, first offset, last offset, commit)
    cdef list staged_starts                 # (first offset, producer id)
    cdef public bint any_seen             # the log has ever had a producer id

    cdef ProducerEntry find_staged(self, int64_t producer_id)
    cdef ProducerEntry find(self, int64_t producer_id)
    # Checks one batch and remembers its changes. Returns a Kafka error code, PRODUCER_OK or
    # PRODUCER_DUPLICATE (then first and last are the original's). marker is NULL except for control
    # batches.
    cdef int stage(self, const BatchInfo* info, int64_t base_offset, bint check_client,
                   bint check_epoch,
                   const EndMarker* marker, int64_t* first, int64_t* last) except -1
    # Whether this client's batch repeats another; then first and last are the original's.
    cdef bint repeats(self, const BatchInfo* info, int64_t* first, int64_t* last) except -1
    # The largest timestamp of the batch that this one repeats, or -1: unknown.
    cdef int64_t original_time(self, const BatchInfo* info) except -2
    cdef int commit(self) except -1         # the batches were written
    cdef int forget_staged(self) except -1  # they were not written
    # The first offset that a read_committed reader must not pass, or -1.
    cdef int64_t first_unstable(self, int64_t high_watermark) except -2
