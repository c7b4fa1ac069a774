# Big-endian and varint readers and writers over raw memory, shared by every module of _fast.
# Fixed-width functions (load, store) do not check bounds: the caller has compared pointer and end.
# Varint readers take (pointer, end) and check before each byte.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #define kstore_bswap16(x) __builtin_bswap16(x)
    #define kstore_bswap32(x) __builtin_bswap32(x)
    #define kstore_bswap64(x) __builtin_bswap64(x)
    #define kstore_bits32(x) (32 - __builtin_clz((x) | 1))
    #define kstore_bits64(x) (64 - __builtin_clzll((x) | 1))
    """
    uint16_t kstore_bswap16(uint16_t x)
    uint32_t kstore_bswap32(uint32_t x)
    uint64_t kstore_bswap64(uint64_t x)
    int kstore_bits32(uint32_t x)   # bits of x up to its highest 1, at least 1
    int kstore_bits64(uint64_t x)


cdef inline int16_t load_int16(const uint8_t* p) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, p, 2)
    return <int16_t>kstore_bswap16(raw)


cdef inline uint16_t load_uint16(const uint8_t* p) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, p, 2)
    return kstore_bswap16(raw)


cdef inline int32_t load_int32(const uint8_t* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return <int32_t>kstore_bswap32(raw)


cdef inline uint32_t load_uint32(const uint8_t* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return kstore_bswap32(raw)


cdef inline int64_t load_int64(const uint8_t* p) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, p, 8)
    return <int64_t>kstore_bswap64(raw)


cdef inline void store_int16(uint8_t* p, int16_t value) noexcept nogil:
    cdef uint16_t raw = kstore_bswap16(<uint16_t>value)
    memcpy(p, &raw, 2)


cdef inline void store_int32(uint8_t* p, int32_t value) noexcept nogil:
    cdef uint32_t raw = kstore_bswap32(<uint32_t>value)
    memcpy(p, &raw, 4)


cdef inline void store_uint32(uint8_t* p, uint32_t value) noexcept nogil:
    cdef uint32_t raw = kstore_bswap32(value)
    memcpy(p, &raw, 4)


cdef inline void store_int64(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint64_t raw = kstore_bswap64(<uint64_t>value)
    memcpy(p, &raw, 8)


# Unsigned LEB128 of at most 5 bytes (32 bits). Returns the bytes read, or 0: truncated or too long.
cdef inline int read_uvarint(const uint8_t* p, const uint8_t* end, uint32_t* out) noexcept nogil:
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef int n = 0
    while p + n < end and n < 5:
        if n == 4 and p[n] > 0x0F:
            return 0
        value |= <uint32_t>(p[n] & 0x7F) << shift
        n += 1
        if p[n - 1] < 0x80:
            out[0] = value
            return n
        shift += 7
    return 0


# Unsigned LEB128 of at most 10 bytes (64 bits). Returns the bytes read, or 0 (as above).
cdef inline int read_uvarlong(const uint8_t* p, const uint8_t* end, uint64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef int n = 0
    while p + n < end and n < 10:
        if n == 9 and p[n] > 0x01:
            return 0
        value |= <uint64_t>(p[n] & 0x7F) << shift
        n += 1
        if p[n - 1] < 0x80:
            out[0] = value
            return n
        shift += 7
    return 0


# Zigzag varint (records' int32 fields). Returns the bytes read, or 0.
cdef inline int read_varint(const uint8_t* p, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef uint32_t raw
    cdef int n
    if p < end and p[0] < 0x80:
        out[0] = <int32_t>(p[0] >> 1) ^ -<int32_t>(p[0] & 1)
        return 1
    if end - p >= 2 and p[1] < 0x80:
        raw = <uint32_t>(p[0] & 0x7F) | <uint32_t>p[1] << 7
        out[0] = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
        return 2
    n = read_uvarint(p, end, &raw)
    if n:
        out[0] = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
    return n


# Zigzag varlong (records' timestamp delta). Returns the bytes read, or 0.
cdef inline int read_varlong(const uint8_t* p, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef uint64_t raw
    cdef int n
    if p < end and p[0] < 0x80:
        out[0] = <int64_t>(p[0] >> 1) ^ -<int64_t>(p[0] & 1)
        return 1
    if end - p >= 2 and p[1] < 0x80:
        raw = <uint64_t>(p[0] & 0x7F) | <uint64_t>p[1] << 7
        out[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        return 2
    n = read_uvarlong(p, end, &raw)
    if n:
        out[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return n


# Writers return the bytes written; the caller has room for 5 (10) bytes.
cdef inline int write_uvarint(uint8_t* p, uint32_t value) noexcept nogil:
    cdef int n = 0
    if value < 0x80:
        p[0] = <uint8_t>value
        return 1
    if value < 0x4000:
        p[0] = <uint8_t>(value & 0x7F) | 0x80
        p[1] = <uint8_t>(value >> 7)
        return 2
    while value >= 0x80:
        p[n] = <uint8_t>(value & 0x7F) | 0x80
        value >>= 7
        n += 1
    p[n] = <uint8_t>value
    return n + 1


cdef inline int write_uvarlong(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int n = 0
    if value < 0x80:
        p[0] = <uint8_t>value
        return 1
    if value < 0x4000:
        p[0] = <uint8_t>(value & 0x7F) | 0x80
        p[1] = <uint8_t>(value >> 7)
        return 2
    while value >= 0x80:
        p[n] = <uint8_t>(value & 0x7F) | 0x80
        value >>= 7
        n += 1
    p[n] = <uint8_t>value
    return n + 1


cdef inline int write_varint(uint8_t* p, int32_t value) noexcept nogil:
    return write_uvarint(p, (<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline int write_varlong(uint8_t* p, int64_t value) noexcept nogil:
    return write_uvarlong(p, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


cdef inline int uvarint_size(uint32_t value) noexcept nogil:
    return (kstore_bits32(value) + 6) // 7


cdef inline int varint_size(int32_t value) noexcept nogil:
    return uvarint_size((<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline int varlong_size(int64_t value) noexcept nogil:
    return (kstore_bits64((<uint64_t>value << 1) ^ <uint64_t>(value >> 63)) + 6) // 7
