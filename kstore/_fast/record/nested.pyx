"""Record batches that are the value of a record of another batch: found, checked, and signed in
place, so that they can be appended without a copy.

Checksums of consecutive parts are combined, so one pass over the records gives the checksum of the
outer batch and the old and new checksums of the batches in it.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AsString
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
    NO_BATCHES = -1
    LARGEST_SEQUENCE = 0x7FFFFFFF   # 0 follows it, as in Kafka
    MOST_RECORDS = 0x7FFFFFFF

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


# The CRC-32C of two consecutive parts.
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


# The CRC-32C of the bytes after the header of a batch whose checksum is right: combining is its own
# inverse.
cdef uint32_t rest_crc_of(const uint8_t* p, Py_ssize_t rest_size) noexcept nogil:
    return crc_of(p, load_uint32(p + BATCH_CRC_AT), rest_size)


# The CRC-32C of all bytes from p to end, if the batches at values..values_end have the right
# checksums.
cdef uint32_t crc_around(
    const uint8_t* p, const uint8_t* values, const uint8_t* values_end, const uint8_t* end
) noexcept nogil:
    cdef BatchInfo info
    cdef uint32_t crc = crc32c(p, values - p)
    cdef Py_ssize_t checked
    while values < values_end:
        read_batch_header(values, values_end, &info)
        checked = info.size_bytes - BATCH_CRC_START
        crc = combine(crc, crc32c(values, BATCH_CRC_START), BATCH_CRC_START)
        crc = combine(crc, info.crc, checked)
        values += info.size_bytes
    return combine(crc, crc32c(values_end, end - values_end), end - values_end)


# The value of the record with this offset delta in p..end; returns its size, or -1 if there is no
# such record, or it has another key or no value.
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


cdef class NestedBatches:
    """See nested.pyi."""

    def sign(self, int64_t base_offset, int64_t producer_id, int16_t producer_epoch,
             int32_t base_sequence):
        cdef uint8_t* p = self.data
        cdef uint8_t* end = p + self.size_bytes
        cdef BatchInfo info
        cdef Py_ssize_t rest_size
        cdef uint32_t rest_crc
        while p < end:
            read_batch_header(p, end, &info)
            rest_size = info.size_bytes - BATCH_HEADER_SIZE
            rest_crc = rest_crc_of(p, rest_size)
            store_int64(p, base_offset)
            store_int64(p + BATCH_PRODUCER_ID_AT, producer_id)
            store_int16(p + BATCH_PRODUCER_EPOCH_AT, producer_epoch)
            store_int32(p + BATCH_BASE_SEQUENCE_AT, base_sequence)
            store_uint32(p + BATCH_CRC_AT, crc_of(p, rest_crc, rest_size))
            base_offset += info.records_count
            base_sequence = (base_sequence + <uint32_t>info.records_count) & LARGEST_SEQUENCE
            p += info.size_bytes

    def __bytes__(self):
        return (<const char*>self.data)[:self.size_bytes]


# The first error of the batches at p..end, or BATCH_OK. NO_BATCHES: there are none, or one is of a
# kind that is not copied.
cdef int check_nested(NestedBatches found, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef BatchInfo info
    while p < end:
        if end - p < BATCH_HEADER_SIZE or read_batch_header(p, end, &info) != BATCH_OK:
            return NO_BATCHES
        if info.crc != crc32c(p + BATCH_CRC_START, info.size_bytes - BATCH_CRC_START):
            return BATCH_BAD_CRC
        if is_control(&info) or is_transactional(&info) or info.records_count < 1 \
                or info.records_count > MOST_RECORDS - found.records:
            return NO_BATCHES
        found.count += 1
        found.records += info.records_count
        found.largest_bytes = max(found.largest_bytes, <Py_ssize_t>info.size_bytes)
        p += info.size_bytes
    return BATCH_OK if found.count else NO_BATCHES


def find_nested(outer not None, int64_t offset, bytes key not None, *, bint verify=True,
                Py_ssize_t size=MOST_RECORDS):
    """See nested.pyi."""
    # No view: a garbage collection that finds one in a cycle crashes Python 3.11.
    cdef BatchInfo info
    cdef const uint8_t* p = <const uint8_t*>(
        PyByteArray_AS_STRING(outer) if type(outer) is bytearray else PyBytes_AsString(outer))
    cdef const uint8_t* end = p + min(size, <Py_ssize_t>len(outer))
    cdef const uint8_t* checked
    cdef const uint8_t* wanted = <const uint8_t*><const char*>key
    cdef Py_ssize_t key_size = len(key)
    cdef MemoryView view
    cdef NestedBatches found = NestedBatches.__new__(NestedBatches)
    cdef int status = read_batch_header(p, end, &info)
    if status != BATCH_OK:
        raise InvalidBatchError(status, 0)
    found.keeps = outer
    checked = p + BATCH_CRC_START
    end = p + info.size_bytes
    if is_compressed(&info):
        if verify:
            verify_all(checked, end, info.crc)
            verify = False
        found.keeps = decompressed_records(p, &info, 0)
        view = view_of(found.keeps)
        p = view.data
        end = p + view.size
    else:
        p += BATCH_HEADER_SIZE
    with nogil:
        size = find_value(&p, end, offset - info.base_offset, wanted, key_size)
        status = NO_BATCHES if size < 0 else check_nested(found, p, p + size)
        if status == BATCH_OK and verify \
                and crc_around(checked, p, p + size, end) != info.crc:
            status = BATCH_BAD_CRC
    if status == NO_BATCHES:
        if verify:
            verify_all(checked, end, info.crc)
        return None
    if status != BATCH_OK:
        raise InvalidBatchError(status, 0)
    found.data = <uint8_t*>p
    found.size_bytes = size
    return found


cdef int verify_all(const uint8_t* p, const uint8_t* end, uint32_t crc) except -1:
    cdef uint32_t made
    with nogil:
        made = crc32c(p, end - p)
    if made != crc:
        raise InvalidBatchError(BATCH_BAD_CRC, 0)
    return 0
