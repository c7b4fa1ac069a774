# Reads requests and writes answers in raw memory: the primitive types of the Kafka protocol, with
# bounds checks. A WireReader never reads past its end. The first field that does not fit sets
# `bad`, and then every read returns 0 or empty, so the caller needs only one check at the end. It
# knows no message.

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kstore._fast.record.buffer cimport (
    load_int16, load_int32, load_int64, read_uvarint, store_int16, store_int32, store_int64,
    write_uvarint)

cdef enum:
    MAX_STRING_BYTES = 0x7FFF

cdef struct WireReader:
    const uint8_t* p
    const uint8_t* end
    bint bad
    int64_t room                            # array elements that are still allowed


cdef inline void begin_reading(
    WireReader* r, const uint8_t* data, Py_ssize_t size, int64_t room
) noexcept nogil:
    r.p = data
    r.end = data + size
    r.bad = False
    r.room = room


# Bytes of the request: NULL data with size -1 is null.
cdef struct WireBytes:
    const uint8_t* data
    Py_ssize_t size


cdef inline bint wire_has(WireReader* r, Py_ssize_t n) noexcept nogil:
    if r.bad or n < 0 or r.end - r.p < n:
        r.bad = True
        return False
    return True


cdef inline int8_t read_int8(WireReader* r) noexcept nogil:
    if not wire_has(r, 1):
        return 0
    r.p += 1
    return <int8_t>(r.p - 1)[0]


cdef inline int16_t read_int16(WireReader* r) noexcept nogil:
    if not wire_has(r, 2):
        return 0
    r.p += 2
    return load_int16(r.p - 2)


cdef inline int32_t read_int32(WireReader* r) noexcept nogil:
    if not wire_has(r, 4):
        return 0
    r.p += 4
    return load_int32(r.p - 4)


cdef inline int64_t read_int64(WireReader* r) noexcept nogil:
    if not wire_has(r, 8):
        return 0
    r.p += 8
    return load_int64(r.p - 8)


cdef inline uint32_t read_unsigned(WireReader* r) noexcept nogil:
    cdef uint32_t value = 0
    cdef int n
    if r.bad:
        return 0
    n = read_uvarint(r.p, r.end, &value)
    if n == 0:
        r.bad = True
        return 0
    r.p += n
    return value


cdef inline WireBytes read_raw(WireReader* r, Py_ssize_t size) noexcept nogil:
    cdef WireBytes out
    out.data = NULL
    out.size = -1
    if wire_has(r, size):
        out.data = r.p
        out.size = size
        r.p += size
    return out


# A compact length or count, with Java's arithmetic: a negative result is null.
cdef inline int32_t read_compact(WireReader* r) noexcept nogil:
    return <int32_t>(read_unsigned(r) - 1)


# A (compact) nullable string: null is size -1.
cdef inline WireBytes read_string(WireReader* r, bint flexible) noexcept nogil:
    cdef Py_ssize_t size = read_compact(r) if flexible else read_int16(r)
    cdef WireBytes out
    out.data = NULL
    out.size = -1
    if r.bad or size < 0:
        return out
    if size > MAX_STRING_BYTES:
        r.bad = True
        return out
    return read_raw(r, size)


# A topic's id of 16 bytes, or its name.
cdef inline WireBytes read_topic(WireReader* r, bint by_id, bint flexible) noexcept nogil:
    return read_raw(r, 16) if by_id else read_string(r, flexible)


# (Compact) nullable bytes: null is size -1.
cdef inline WireBytes read_bytes(WireReader* r, bint flexible) noexcept nogil:
    cdef Py_ssize_t size = read_compact(r) if flexible else read_int32(r)
    cdef WireBytes out
    out.data = NULL
    out.size = -1
    if r.bad or size < 0:
        return out
    return read_raw(r, size)


# An array's length; null is -1. Each element has at least one byte, so a count above the remaining
# bytes is bad, and so is one above the elements that are still allowed.
cdef inline Py_ssize_t read_count(WireReader* r, bint flexible) noexcept nogil:
    cdef Py_ssize_t count = read_compact(r) if flexible else read_int32(r)
    if r.bad:
        return 0
    if count > r.end - r.p or count > r.room:
        r.bad = True
        return 0
    if count < 0:
        return -1
    r.room -= count
    return count


# The same if null is not allowed.
cdef inline Py_ssize_t read_some(WireReader* r, bint flexible) noexcept nogil:
    cdef Py_ssize_t count = read_count(r, flexible)
    if count < 0:
        r.bad = True
        return 0
    return count


cdef inline void skip_tags(WireReader* r, bint flexible) noexcept nogil:
    cdef int32_t count, i
    if not flexible:
        return
    count = <int32_t>read_unsigned(r)       # a negative value means none, as in Kafka
    for i in range(count):
        read_unsigned(r)
        read_raw(r, <Py_ssize_t>read_unsigned(r))
        if r.bad:
            return


# Reads all tagged fields and returns the number (1 or 4 bytes) of the wanted one; -1 if it is
# absent. A field of another size is bad.
cdef inline int64_t read_number_tag(
    WireReader* r, bint flexible, uint32_t wanted, Py_ssize_t size
) noexcept nogil:
    cdef int32_t count, i
    cdef uint32_t tag
    cdef WireBytes field
    cdef int64_t value = -1
    if not flexible:
        return -1
    count = <int32_t>read_unsigned(r)
    for i in range(count):
        tag = read_unsigned(r)
        field = read_raw(r, <Py_ssize_t>read_unsigned(r))
        if r.bad:
            return -1
        if tag == wanted:
            if field.size != size:
                r.bad = True
                return -1
            value = load_int32(field.data) if size == 4 else field.data[0]
    return value


# Growing memory to send. Call `room` first, then `put` for up to that many bytes.
cdef class AnswerBuffer:
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t sent            # the bytes that the socket accepted
    # Slices of files to send between its bytes (sending.pxd), ordered by place.
    cdef list slices                # or None
    cdef int64_t slice_bytes        # of them all, unsent
    cdef int64_t earlier_bytes      # of those of earlier answers in this buffer
    cdef bint takes_slices          # its reader is a socket, and it is next in order
    cdef int clear(self) except -1
    cdef int grow(self, Py_ssize_t n) except -1
    cdef int shrink(self, Py_ssize_t capacity) except -1


cdef inline int room(AnswerBuffer b, Py_ssize_t n) except -1:
    if b.capacity - b.size < n:
        b.grow(n)
    return 0


cdef inline void put_int8(AnswerBuffer b, int8_t value) noexcept:
    b.data[b.size] = <uint8_t>value
    b.size += 1


cdef inline void put_int16(AnswerBuffer b, int16_t value) noexcept:
    store_int16(b.data + b.size, value)
    b.size += 2


cdef inline void put_int32(AnswerBuffer b, int32_t value) noexcept:
    store_int32(b.data + b.size, value)
    b.size += 4


cdef inline void put_int64(AnswerBuffer b, int64_t value) noexcept:
    store_int64(b.data + b.size, value)
    b.size += 8


cdef inline void put_unsigned(AnswerBuffer b, uint32_t value) noexcept:
    b.size += write_uvarint(b.data + b.size, value)


cdef inline void put_raw(AnswerBuffer b, const uint8_t* data, Py_ssize_t size) noexcept:
    memcpy(b.data + b.size, data, size)
    b.size += size


# An array's or a bytes field's length; -1 is null. Takes up to 5 bytes.
cdef inline void put_count(AnswerBuffer b, Py_ssize_t count, bint flexible) noexcept:
    if flexible:
        put_unsigned(b, <uint32_t>(count + 1))
    else:
        put_int32(b, <int32_t>count)


# Takes up to 5 bytes more than the string; size -1 is null.
cdef inline void put_string(
    AnswerBuffer b, const uint8_t* data, Py_ssize_t size, bint flexible
) noexcept:
    if flexible:
        put_unsigned(b, <uint32_t>(size + 1))
    else:
        put_int16(b, <int16_t>size)
    if size > 0:
        put_raw(b, data, size)


cdef inline void put_no_tags(AnswerBuffer b, bint flexible) noexcept:
    if flexible:
        put_int8(b, 0)
