# Builds record batches: a single record in the caller's memory, or many in a growing buffer that is
# reused for each batch.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

# The room that build_single needs, for any offset and timestamp. Sizes of -1 are null.
cdef inline Py_ssize_t single_batch_room(Py_ssize_t key_size, Py_ssize_t value_size) noexcept nogil:
    return 61 + 32 + (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)

# A complete batch of one record without headers, including the CRC. Returns its size; the caller
# has made room. A NULL key or value with size -1 is null. key_size + value_size < 2^31 - 200.
cdef Py_ssize_t build_single(
    uint8_t* into, int64_t base_offset, int32_t leader_epoch, int64_t timestamp,
    const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
    Py_ssize_t value_size) noexcept nogil

# A user's timestamp; raises TypeError unless it is an integer.
cdef int64_t milliseconds(object timestamp) except? -1

# A batch under construction. After seal(), data[:size_bytes] is the batch; reset() starts the next
# one in the same memory. Attributes may be set at any time before seal().
cdef class RecordBatchBuilder:
    cdef uint8_t* data
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t size_bytes     # header included, before compression
    cdef readonly int32_t count
    cdef int64_t first_timestamp
    cdef int64_t largest_timestamp
    cdef bint sealed
    cdef public int compression             # 0..4
    cdef public int level                   # < 0: the codec's default
    cdef public int64_t producer_id
    cdef public int16_t producer_epoch
    cdef public int32_t base_sequence
    cdef public bint transactional
    cdef public bint control

    # headers: already encoded (each: varint size, key, varint size, value), header_count of them.
    cdef int append_memory(self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value,
                           Py_ssize_t value_size, int64_t timestamp, const uint8_t* headers,
                           Py_ssize_t headers_size, int32_t header_count) except -1
    # Any bytes-like or None.
    cdef int append_objects(self, object value, object key, int64_t timestamp,
                            object headers) except -1
    # A record as users give it: a value, (key, value), (key, value, timestamp) or (.., headers).
    cdef int append_record(self, object record, int64_t default_timestamp) except -1
    # All of a list of bytes, in an empty batch, in one tight loop. False, without effect, if not
    # all are bytes, or if they may need more than limit bytes.
    cdef bint fill_values(self, list values, int64_t now, int64_t limit) except -1
    cdef int seal(self, int64_t base_offset, int32_t leader_epoch) except -1
    cdef int _reserve(self, Py_ssize_t more) except -1
    cpdef int reset(self) except -1
