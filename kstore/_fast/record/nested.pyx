"""A record batch that is the value of a record of another batch: found, checked, and signed anew
where it lies, so that it can be appended without being copied.

Checksums of parts that lie behind one another are combined, so that the records are gone over once
for the old and the new checksum of a batch.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kstore._fast.record.batch cimport (
    BATCH_BAD_CRC, BATCH_BASE_SEQUENCE_AT, BATCH_CRC_AT, BATCH_CRC_START, BATCH_HEADER_SIZE,
    BATCH_OK, BATCH_PRODUCER_EPOCH_AT, BATCH_PRODUCER_ID_AT, BatchInfo, decompressed_records,
    is_compressed, is_control, is_transactional, read_batch_header)
from kstore._fast.record.buffer cimport (
    load_uint32, read_varint, read_varlong, store_int16, store_int32, store_int64, store_uint32)
from kstore._fast.record.crc32c cimport crc32c
from kstore._fast.record.memory cimport MemoryView, view_of

from kstore._fast.record.batch import InvalidBatchError

cdef enum:
    RELEASE_GIL_ABOVE = 32768

# CRC-32C's polynomial, and x**(2**k) modulo it, the highest power last in a word.
cdef uint32_t POLYNOMIAL = 0x82F63B78U
cdef uint32_t[64] POWERS


# The product of two polynomials modulo CRC-32C's.
cdef uint32_t product(uint32_t a, uint32_t b) noexcept nogil:
    cdef uint32_t made = 0
    cdef int bit
    for bit in range(31, -1, -1):
        if (a >> bit) & 1:
            made ^= b
        b = (b >> 1) ^ (POLYNOMIAL if b & 1 else 0)
    return made


cdef void make_powers() noexcept nogil:
    cdef int k
    POWERS[0] = 0x40000000U                 # x
    for k in range(1, 64):
        POWERS[k] = product(POWERS[k - 1], POWERS[k - 1])


make_powers()


# The CRC-32C of two parts that lie behind one another.
cdef uint32_t combine(uint32_t first, uint32_t second, Py_ssize_t second_size) noexcept nogil:
    cdef uint64_t bits = <uint64_t>second_size * 8
    cdef uint32_t shift = 0x80000000U       # 1
    cdef int k = 0
    while bits:
        if bits & 1:
            shift = product(POWERS[k], shift)
        bits >>= 1
        k += 1
    return product(shift, first) ^ second


def combined_checksum(uint32_t first, uint32_t second, Py_ssize_t second_size):
    """See nested.pyi."""
    return combine(first, second, second_size)


cdef uint32_t crc_of(const uint8_t* p, uint32_t rest_crc, Py_ssize_t rest_size) noexcept nogil:
    return combine(
        crc32c(p + BATCH_CRC_START, BATCH_HEADER_SIZE - BATCH_CRC_START), rest_crc, rest_size)


# The value of the record with this offset delta among the records in p..end; its size, -1 where
# there is none, or another key, or no value.
cdef Py_ssize_t find_value(
    const uint8_t** p, const uint8_t* end, int64_t delta, const uint8_t* key, Py_ssize_t key_size
) noexcept nogil:
    cdef const uint8_t* at = p[0]
    cdef const uint8_t* stop
    cdef int32_t length, number, size
    cdef int64_t timestamp
    cdef int n
    while at < end:
        n = read_varint(at, end, &length)
        if n == 0 or length < 1 or length > end - at - n:
            return -1
        at += n
        stop = at + length
        at += 1
        n = read_varlong(at, stop, &timestamp)
        if n == 0:
            return -1
        at += n
        n = read_varint(at, stop, &number)
        if n == 0:
            return -1
        at += n
        if number != delta:
            at = stop
            continue
        n = read_varint(at, stop, &size)
        if n == 0 or size != key_size or size > stop - at - n:
            return -1
        at += n
        if memcmp(at, key, key_size) != 0:
            return -1
        at += size
        n = read_varint(at, stop, &size)
        if n == 0 or size < 0 or size > stop - at - n:
            return -1
        p[0] = at + n
        return size
    return -1


cdef class NestedBatch:
    """See nested.pyi."""

    def sign(self, int64_t base_offset, int64_t producer_id, int16_t producer_epoch,
             int32_t base_sequence):
        cdef uint8_t* p = self.data
        store_int64(p, base_offset)
        store_int64(p + BATCH_PRODUCER_ID_AT, producer_id)
        store_int16(p + BATCH_PRODUCER_EPOCH_AT, producer_epoch)
        store_int32(p + BATCH_BASE_SEQUENCE_AT, base_sequence)
        store_uint32(p + BATCH_CRC_AT, crc_of(
            p, self.rest_crc, self.size_bytes - BATCH_HEADER_SIZE))

    def __bytes__(self):
        return (<const char*>self.data)[:self.size_bytes]


def find_nested(bytes outer not None, int64_t offset, bytes key not None):
    """See nested.pyi."""
    cdef BatchInfo info
    cdef const uint8_t* p = <const uint8_t*><const char*>outer
    cdef const uint8_t* end = p + len(outer)
    cdef const uint8_t* wanted = <const uint8_t*><const char*>key
    cdef Py_ssize_t key_size = len(key)
    cdef Py_ssize_t size
    cdef MemoryView view
    cdef object keeps = outer
    cdef NestedBatch found
    cdef int status = read_batch_header(p, end, &info)
    if status != BATCH_OK:
        raise InvalidBatchError(status, 0)
    if is_compressed(&info):
        keeps = decompressed_records(p, &info, 0)
        view = view_of(keeps)
        p = view.data
        end = p + view.size
    else:
        end = p + info.size_bytes
        p += BATCH_HEADER_SIZE
    with nogil:
        size = find_value(&p, end, offset - info.base_offset, wanted, key_size)
    if size < BATCH_HEADER_SIZE or read_batch_header(p, p + size, &info) != BATCH_OK \
            or info.size_bytes != size or is_control(&info) or is_transactional(&info):
        return None
    found = NestedBatch.__new__(NestedBatch)
    found.keeps = keeps
    found.data = <uint8_t*>p
    found.size_bytes = size
    found.records = info.records_count
    if size > RELEASE_GIL_ABOVE:
        with nogil:
            found.rest_crc = crc32c(p + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE)
    else:
        found.rest_crc = crc32c(p + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE)
    if crc_of(p, found.rest_crc, size - BATCH_HEADER_SIZE) != load_uint32(p + BATCH_CRC_AT):
        raise InvalidBatchError(BATCH_BAD_CRC, 0)
    return found
