# Produce, versions 3 to 13, from the frame to the answer.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.broker.partition cimport Partition, TopicEntry
from kstore._fast.broker.partition_table cimport PartitionTable
from kstore._fast.broker.produce_later cimport ProduceJob
from kstore._fast.broker.produce_request cimport (
    ProducePartition, ProduceRequest, ProduceTopic)
from kstore._fast.broker.produce_slot cimport ProduceOffsets, ProduceSlot, ProduceWaits
from kstore._fast.broker.slots cimport AnswerSink
from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.record.unpack cimport Verdict
from kstore._fast.protocol.wire cimport AnswerBuffer, WireBytes, WireReader

cdef enum ProduceOutcome:
    PRODUCE_ANSWERED = 0
    PRODUCE_SILENT = 1              # acks=0: no answer
    PRODUCE_CLOSE = 2               # acks=0 and something failed: close the connection
    PRODUCE_MALFORMED = 3           # nothing was appended
    PRODUCE_LATER = 4               # nothing was appended: handle it again when it is admitted

# The producer of a request's transactional batches.
cdef struct Transactional:
    int64_t producer_id
    int16_t epoch
    bint mixed                      # several producers

cdef class ProducePath:
    cdef PartitionTable table
    cdef object report              # callable(str): reports to the operator, once per event
    cdef bint durable               # an answer waits until its records are on disk
    # callable(connection, transactional id, (producer id, epoch), version,
    # [(partition, base sequence)]) -> {partition: error code}, or None: it calls the connection's
    # admitted() when it knows; None: there are no transactions
    cdef public object admit_transactional
    # callable(connection, jobs of produce_later.find_packed): has threads check the batches, gives
    # the verdicts to the connection and calls its admitted(); None: the loop checks all
    cdef public object unpack_later
    cdef int64_t unpack_budget      # bytes that may still be decompressed in this turn
    cdef Verdict at_once            # for batches that no thread has checked
    # partition -> error code, or None: refused by broker/faults.py; denied: although appended
    cdef public dict injected
    cdef public dict injected_after
    cdef ProduceRequest spare       # reused for the next request; None while one is handled
    # of the current request
    cdef object rights              # the client's (state.security.authorizer.Rights); None: all
    cdef WireBytes client_id        # that its header names
    cdef list faults                # of the current batch, if it was refused: produce_slot's
    cdef int16_t barred             # why it is refused as a whole; 0: it is not
    cdef int32_t timeout_ms
    cdef list waits                 # PartWait, for records that the followers still lack; or None
    cdef list leaders               # node ids that the answer names (KIP-951); or None
    cdef Py_ssize_t throttle_at     # the place of the throttle time in the answer
    cdef dict refused               # partition -> why its transactional batch is refused
    cdef readonly list appended     # (log, end offset) of this request, if it must be durable
    cdef readonly ProduceWaits waiting  # answers that wait for followers
    cdef readonly int64_t requests
    cdef readonly int64_t batches
    cdef readonly int64_t bytes_in
    # r is after the request header; the records in the frame are changed in place.
    cdef int handle(
        self, AnswerSink connection, WireReader* r, int version, AnswerBuffer out) except -1
    # The slot of the current request, whose encoded answer begins at start and waits for followers.
    cdef ProduceSlot park(
        self, AnswerSink sink, int32_t correlation_id, bint flexible, AnswerBuffer answer,
        Py_ssize_t start)
    cdef int handle_parsed(
        self, AnswerSink connection, ProduceRequest request, AnswerBuffer out) except -1
    cdef Verdict verdict(self, AnswerSink connection, Py_ssize_t place)
    cdef bint must_wait(self, AnswerSink connection, ProduceRequest request) except -1
    cdef bint must_come_later(self, AnswerSink connection, ProduceRequest request) except -1
    cdef bint must_unpack(self, AnswerSink connection, ProduceRequest request) except -1
    cdef bint must_append_later(self, AnswerSink connection, ProduceRequest request) except -1
    cdef int16_t check_part(
        self, Partition partition, ProduceRequest request, const ProduceTopic* topic,
        const ProducePartition* part) except -1
    cdef bytearray stored_anew(self, Partition partition, WireBytes records, Verdict seen)
    cdef int admit(self, AnswerSink connection, ProduceRequest request) except -1
    cdef int find_transactional(
        self, AnswerSink connection, ProduceRequest request, ProduceTopic* topic,
        Transactional* found, list asked) except -1
    cdef TopicEntry find_topic(self, ProduceRequest request, const ProduceTopic* topic)
    cdef int append_topic(
        self, AnswerSink connection, ProduceRequest request, const ProduceTopic* topic,
        AnswerBuffer out) except -1
    cdef int16_t append_one(
        self, Partition partition, ProduceRequest request, const ProducePartition* part,
        Verdict seen, ProduceOffsets* offsets) except -1
    cdef int16_t check_one(
        self, Partition partition, ProduceRequest request, const ProducePartition* part
    ) except -1
    cdef int16_t end_one(
        self, Partition partition, ProduceRequest request, WireBytes records, Verdict seen,
        const AppendResult* result, ProduceOffsets* offsets) except -1
    cdef int16_t explain(
        self, Partition partition, ProduceRequest request, WireBytes records, Verdict seen,
        int16_t error, ProduceOffsets* offsets) except -1
    cdef int16_t take_job(
        self, ProduceJob job, ProduceRequest request, ProduceOffsets* offsets) except -1
    cdef int16_t fail_one(self, Partition partition, object problem) except -1
    cdef int wait_for(
        self, Partition partition, int64_t end_offset, Py_ssize_t error_at, Py_ssize_t tags_at
    ) except -1
