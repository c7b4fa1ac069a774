# The batches of one append before they are written: their errors, their offsets, and the state of
# their producers. It writes nothing and knows no log: log_core.pyx does.

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kstore._fast.error_codes cimport (
    CORRUPT_MESSAGE, INVALID_PRODUCE_OFFSET, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    NONE, NOT_LEADER_OR_FOLLOWER, RECORD_LIST_TOO_LARGE)
from kstore._fast.log.batch_facts cimport has_keys, least_timestamp, read_end_marker
from kstore._fast.log.producer_table cimport EndMarker, PRODUCER_DUPLICATE, PRODUCER_OK
from kstore._fast.record.batch cimport (
    BATCH_BAD_TIMESTAMP, BATCH_OK, assign_log_append_time, assign_max_timestamp,
    assign_offset_and_epoch, batch_error_code, check_batch, check_monotonic, is_compressed,
    is_control, is_log_append_time, read_batch_header, validate_compressed, validate_summed)
from kstore._fast.record.compression cimport MAX_DECOMPRESSED_BYTES

cdef enum:
    RELEASE_GIL_ABOVE = 32768


cdef class AppendInfo:
    """The result of an append."""

    def __repr__(self):
        mark = ", duplicate" if self.duplicate else ""
        return f"AppendInfo({self.base_offset}..{self.last_offset}{mark})"


cdef AppendInfo make_info(const AppendResult* result):
    cdef AppendInfo info = AppendInfo.__new__(AppendInfo)
    info.base_offset = result.base_offset
    info.last_offset = result.last_offset
    info.log_append_time_ms = result.log_append_time_ms
    info.log_start_offset = result.log_start_offset
    info.duplicate = result.duplicate
    return info


cdef class AppendPlan:
    def __cinit__(self):
        self.segment_bytes = 1 << 30
        self.max_message_bytes = 1048588
        self.before_max_ms = self.after_max_ms = NO_LIMIT

    def __dealloc__(self):
        PyMem_RawFree(self.batches)

    cdef int make_room(self) except -1:
        cdef int room = self.room * 2 + 8
        cdef BatchInfo* moved = <BatchInfo*>PyMem_RawRealloc(self.batches, room * sizeof(BatchInfo))
        if moved == NULL:
            raise MemoryError
        self.batches = moved
        self.room = room
        return 0

    # Kafka's error code for invalid bytes.
    cdef int16_t analyse(self, uint8_t* data, Py_ssize_t size, int origin, bint trusted) except -1:
        cdef int status
        cdef bint walk = not trusted and not as_they_are(origin)
        cdef bint check = not trusted
        if size > RELEASE_GIL_ABOVE:
            with nogil:
                status = self.analyse_headers(data, size, check, walk)
        else:
            status = self.analyse_headers(data, size, check, walk)
        if status != BATCH_OK:
            return batch_error_code(status)
        if self.count == 0:
            return CORRUPT_MESSAGE
        return self.check_kinds(data, origin) if walk else 0

    cdef int analyse_headers(self, uint8_t* data, Py_ssize_t size, bint check,
                             bint walk) except -1 nogil:
        cdef uint8_t* p = data
        cdef uint8_t* end = data + size
        cdef BatchInfo* info
        cdef int status
        self.count = 0
        while p < end:
            if self.count == self.room:
                with gil:
                    self.make_room()
            info = &self.batches[self.count]
            if check and not self.summed:
                status = check_batch(p, end, info)
            else:
                status = read_batch_header(p, end, info)
            if walk and status == BATCH_OK:
                status = validate_summed(p, info)
            # the rest is valid: correct it, as Kafka does
            if status == BATCH_BAD_TIMESTAMP:
                assign_max_timestamp(p, info.max_timestamp, info.size_bytes)
            elif status != BATCH_OK:
                return status
            p += info.size_bytes
            self.count += 1
        return BATCH_OK

    cdef int16_t check_kinds(self, uint8_t* data, int origin) except -1:
        cdef BatchInfo* info
        cdef int i, status
        for i in range(self.count):
            info = &self.batches[i]
            if is_control(info) and origin != ORIGIN_COORDINATOR:
                return INVALID_RECORD                   # clients may not write control records
            if origin == ORIGIN_CLIENT and info.producer_id >= 0 and info.base_sequence < 0:
                return INVALID_RECORD                   # a producer id comes with a sequence
            if is_log_append_time(info) and (self.log_append_time or info.max_timestamp == -1):
                # as in Kafka, which allows it in other batches
                return INVALID_TIMESTAMP
            if is_compressed(info):
                if info.size_bytes > self.max_message_bytes:
                    return MESSAGE_TOO_LARGE        # it is not checked
                status = self.check_packed(data, info)
                if status == BATCH_BAD_TIMESTAMP:
                    assign_max_timestamp(data, info.max_timestamp, info.size_bytes)
                elif status != BATCH_OK:
                    return batch_error_code(status)
            if self.compacted and origin == ORIGIN_CLIENT and not self.are_keyed(data, info):
                return INVALID_RECORD                   # compaction could only drop it
            data += info.size_bytes
        return NONE

    cdef int check_packed(self, uint8_t* data, BatchInfo* info) except -1:
        """The errors in a compressed batch's records, found by a thread or by a check here."""
        cdef Verdict seen = self.seen
        if seen is None:
            return validate_compressed(data, info, MAX_DECOMPRESSED_BYTES)
        if seen.status < 0:
            return validate_compressed(data, info, seen.max_bytes)
        if seen.status == BATCH_BAD_TIMESTAMP:
            info.max_timestamp = seen.max_timestamp
        return seen.status

    cdef bint are_keyed(self, uint8_t* data, BatchInfo* info) except -1:
        if self.seen is not None and self.seen.status >= 0 and is_compressed(info):
            return self.seen.has_keys
        return has_keys(data, info)

    cdef int16_t check_limits(self, Py_ssize_t size) except -1:
        cdef int i
        for i in range(self.count):
            if self.batches[i].size_bytes > self.max_message_bytes:
                return MESSAGE_TOO_LARGE
        return RECORD_LIST_TOO_LARGE if size > self.segment_bytes else NONE

    cdef int16_t check_times(self, uint8_t* data, int64_t now) except -1:
        cdef BatchInfo* info
        cdef int64_t least
        cdef int i
        for i in range(self.count):
            info = &self.batches[i]
            if info.max_timestamp != -1 and info.max_timestamp - now > self.after_max_ms:
                return INVALID_TIMESTAMP
            if self.before_max_ms != NO_LIMIT:
                least = info.base_timestamp if is_compressed(info) else least_timestamp(data, info)
                if least != -1 and now - least > self.before_max_ms:
                    return INVALID_TIMESTAMP
            data += info.size_bytes
        return NONE

    cdef void take_time(self, int64_t now) noexcept:
        cdef int i
        for i in range(self.count):
            self.batches[i].max_timestamp = now

    # The offsets that the batches get, or whether given offsets fit.
    # offset: the log's end; epoch: of the record before it. Epochs never decrease in a log: the
    # epoch cache would forget the higher one, and its batches could not be read any more.
    cdef int16_t place(
        self, int64_t offset, int32_t epoch, int32_t leader_epoch, int origin
    ) noexcept:
        cdef BatchInfo* info
        cdef int i
        if leader_epoch < epoch and not as_they_are(origin):
            return NOT_LEADER_OR_FOLLOWER
        for i in range(self.count):
            info = &self.batches[i]
            if origin == ORIGIN_CLIENT or origin == ORIGIN_COORDINATOR:
                info.base_offset = offset
            elif check_monotonic(info, offset) != BATCH_OK:
                return INVALID_PRODUCE_OFFSET
            if not as_they_are(origin):
                info.partition_leader_epoch = leader_epoch
            elif info.partition_leader_epoch < epoch and info.partition_leader_epoch != -1:
                return CORRUPT_MESSAGE
            epoch = max(epoch, info.partition_leader_epoch)
            offset = info.base_offset + info.last_offset_delta + 1
        if offset - 1 - self.batches[0].base_offset > LARGEST_OFFSET_DELTA:
            return RECORD_LIST_TOO_LARGE                # does not fit in one segment
        return NONE

    cdef bint is_repeated(
        self, ProducerTable producers, int origin, AppendResult* out
    ) except -1:
        cdef bint client = origin == ORIGIN_CLIENT or origin == ORIGIN_GIVEN_OFFSETS
        cdef BatchInfo* info = &self.batches[0]
        if not client or self.count != 1 or info.producer_id < 0 or is_control(info):
            return False
        if not producers.repeats(info, &out.base_offset, &out.last_offset):
            return False
        out.error_code = NONE
        out.duplicate = True
        if self.log_append_time:
            out.log_append_time_ms = producers.original_time(info)
        return True

    # True: the append ends here, as a duplicate or with an error code.
    cdef bint stage(
        self, ProducerTable producers, const uint8_t* data, int origin, AppendResult* out
    ) except -1:
        cdef bint client = origin == ORIGIN_CLIENT or origin == ORIGIN_GIVEN_OFFSETS
        cdef bint checked = not as_they_are(origin)
        cdef EndMarker marker
        cdef EndMarker* end_marker
        cdef BatchInfo* info
        cdef int i, found
        for i in range(self.count):
            info = &self.batches[i]
            if info.producer_id >= 0:
                end_marker = NULL
                if is_control(info):
                    if not read_end_marker(data, info, &marker):
                        out.error_code = INVALID_RECORD
                        return True
                    end_marker = &marker
                found = producers.stage(
                    info, info.base_offset, client and info.base_sequence >= 0, checked, end_marker,
                    &out.base_offset, &out.last_offset)
                if found == PRODUCER_DUPLICATE:
                    out.duplicate = True
                    if self.log_append_time:
                        out.log_append_time_ms = producers.original_time(info)
                    return True
                if found != PRODUCER_OK:
                    out.error_code = <int16_t>found
                    return True
            data += info.size_bytes
        return False

    cdef int assign(self, uint8_t* data, Py_ssize_t size, int origin, int64_t now) except -1:
        if as_they_are(origin):
            return 0
        if size > RELEASE_GIL_ABOVE and self.log_append_time:
            with nogil:
                self.assign_batches(data, now)
        else:
            self.assign_batches(data, now)
        return 0

    cdef void assign_batches(self, uint8_t* data, int64_t now) noexcept nogil:
        cdef BatchInfo* info
        cdef int i
        for i in range(self.count):
            info = &self.batches[i]
            assign_offset_and_epoch(data, info.base_offset, info.partition_leader_epoch)
            if self.log_append_time:
                assign_log_append_time(data, now, info.size_bytes)
            data += info.size_bytes

    cdef int64_t end_offset(self) noexcept:
        cdef BatchInfo* info = &self.batches[self.count - 1]
        return info.base_offset + info.last_offset_delta + 1

    cdef Py_ssize_t size_bytes(self) noexcept:
        cdef Py_ssize_t size = 0
        cdef int i
        for i in range(self.count):
            size += self.batches[i].size_bytes
        return size

    cdef int plan_pieces(
        self, ProducerTable producers, AppendPiece* pieces, int count, int64_t end, int32_t epoch,
        int32_t leader_epoch, int64_t now, iovec* parts
    ) except -1:
        cdef BatchInfo[MAX_PIECES] taken
        cdef AppendPiece* piece
        cdef int i, n = 0
        for i in range(min(count, MAX_PIECES)):
            piece = &pieces[i]
            if not self.plan_piece(producers, piece, end, epoch, leader_epoch, now):
                continue
            taken[n] = self.batches[0]
            parts[n].iov_base = piece.data
            parts[n].iov_len = <size_t>piece.size
            n += 1
            end = self.end_offset()
        while self.room < n:
            self.make_room()
        memcpy(self.batches, taken, n * sizeof(BatchInfo))
        self.count = n
        return n

    cdef bint plan_piece(
        self, ProducerTable producers, AppendPiece* piece, int64_t end, int32_t epoch,
        int32_t leader_epoch, int64_t now
    ) except -1:
        """Whether it must be written; its result is as if it were."""
        cdef AppendResult* out = &piece.result
        out.error_code = self.analyse(piece.data, piece.size, ORIGIN_CLIENT, False)
        if out.error_code == NONE:
            out.error_code = self.check_limits(piece.size)
        if out.error_code == NONE and self.log_append_time:
            self.take_time(now)
        elif out.error_code == NONE:
            out.error_code = self.check_times(piece.data, now)
        if out.error_code == NONE:
            out.error_code = self.place(end, epoch, leader_epoch, ORIGIN_CLIENT)
        if out.error_code == MESSAGE_TOO_LARGE and self.is_repeated(producers, ORIGIN_CLIENT, out):
            return False
        if out.error_code != NONE or self.stage(producers, piece.data, ORIGIN_CLIENT, out):
            return False
        self.assign(piece.data, piece.size, ORIGIN_CLIENT, now)
        out.end_before = out.base_offset = end
        out.log_end_offset = self.end_offset()
        out.last_offset = out.log_end_offset - 1
        if self.log_append_time:
            out.log_append_time_ms = now
        return True
