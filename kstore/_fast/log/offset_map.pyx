# The cleaner's map from key hash to last offset: open addressing with linear probing, at most nine
# tenths full. It grows by doubling up to its bound, so that cleaning a small log takes little
# memory.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from kstore._fast.record.memory cimport MemoryView, view_of

cdef extern from * nogil:
    """
    #define kstore_rotate(x, n) (((x) << (n)) | ((x) >> (64 - (n))))
    #define kstore_scale(x, n) ((uint64_t)(((unsigned __int128)(x) * (uint64_t)(n)) >> 64))
    """
    uint64_t kstore_rotate(uint64_t x, int n)
    uint64_t kstore_scale(uint64_t x, uint64_t n)

cdef enum:
    SMALLEST_CAPACITY = 1024
    LOAD_TENTHS = 9


cdef inline void _sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = kstore_rotate(v[1], 13) ^ v[0]
    v[3] = kstore_rotate(v[3], 16) ^ v[2]
    v[0] = kstore_rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = kstore_rotate(v[1], 17) ^ v[2]
    v[3] = kstore_rotate(v[3], 21) ^ v[0]
    v[2] = kstore_rotate(v[2], 32)


cdef inline void _sip_word(uint64_t* v, uint64_t word) noexcept nogil:
    v[3] ^= word
    _sip_round(v)
    _sip_round(v)
    v[0] ^= word


# SipHash-2-4 with its 128-bit output (Aumasson, Bernstein), little-endian words.
cdef KeyHash hash_key(uint64_t k0, uint64_t k1, const uint8_t* data,
                      Py_ssize_t size) noexcept nogil:
    cdef uint64_t[4] v
    cdef uint64_t word
    cdef Py_ssize_t at = 0
    cdef KeyHash out
    cdef int i
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575U
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6DU ^ 0xEE
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261U
    v[3] = k1 ^ <uint64_t>0x7465646279746573U
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        _sip_word(v, word)
        at += 8
    word = <uint64_t>(size & 0xFF) << 56
    i = 0
    while at < size:
        word |= <uint64_t>data[at] << (8 * i)
        at += 1
        i += 1
    _sip_word(v, word)
    v[2] ^= 0xEE
    for i in range(4):
        _sip_round(v)
    out.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        _sip_round(v)
    out.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    return out


cdef class OffsetMap:
    def __cinit__(self, int64_t max_bytes, bytes seed):
        if len(seed) != 16:
            raise ValueError(f"the seed has {len(seed)} bytes: pass 16 random ones")
        self.k0 = int.from_bytes(seed[:8], "little")
        self.k1 = int.from_bytes(seed[8:], "little")
        self.max_capacity = max_bytes // <int64_t>sizeof(MapSlot)
        if self.max_capacity < 16:
            raise ValueError(
                f"{max_bytes} bytes hold {self.max_capacity} keys: give the map room for at least "
                f"16 ({16 * sizeof(MapSlot)} bytes)")
        self.latest_offset = -1
        if self.grow(min(<Py_ssize_t>SMALLEST_CAPACITY, self.max_capacity)) != MAP_STORED:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)

    cdef MapSlot* place(self, KeyHash hashed) noexcept nogil:
        cdef Py_ssize_t at = kstore_scale(hashed.high, self.capacity)
        cdef MapSlot* slot
        while True:
            slot = self.slots + at
            if slot.offset < 0 or (slot.high == hashed.high and slot.low == hashed.low):
                return slot
            at += 1
            if at == self.capacity:
                at = 0

    cdef int grow(self, Py_ssize_t capacity) noexcept nogil:
        cdef MapSlot* old = self.slots
        cdef Py_ssize_t old_capacity = self.capacity
        cdef MapSlot* slots = <MapSlot*>malloc(capacity * sizeof(MapSlot))
        cdef KeyHash hashed
        cdef Py_ssize_t i
        if slots == NULL:
            return MAP_NO_MEMORY
        for i in range(capacity):
            slots[i].offset = -1
        self.slots = slots
        self.capacity = capacity
        for i in range(old_capacity):
            if old[i].offset >= 0:
                hashed.high = old[i].high
                hashed.low = old[i].low
                self.place(hashed)[0] = old[i]
        free(old)
        return MAP_STORED

    cdef int store(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil:
        cdef KeyHash hashed = hash_key(self.k0, self.k1, key, size)
        cdef MapSlot* slot = self.place(hashed)
        cdef int status
        if slot.offset >= 0:
            slot.offset = offset
            return MAP_STORED
        if self.count >= self.capacity * LOAD_TENTHS // 10:
            if self.capacity >= self.max_capacity:
                return MAP_FULL
            status = self.grow(min(self.capacity * 2, self.max_capacity))
            if status != MAP_STORED:
                return status
            slot = self.place(hashed)
        slot.high = hashed.high
        slot.low = hashed.low
        slot.offset = offset
        self.count += 1
        return MAP_STORED

    cdef int64_t find(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        return self.place(hash_key(self.k0, self.k1, key, size)).offset

    def put(self, key, int64_t offset):
        cdef MemoryView given = view_of(key)
        cdef int status
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        status = self.store(given.data, given.size, offset)
        if status == MAP_NO_MEMORY:
            raise MemoryError()
        return status == MAP_STORED

    def get(self, key):
        cdef MemoryView given = view_of(key)
        return self.find(given.data, given.size)

    def hash(self, key):
        cdef MemoryView given = view_of(key)
        cdef KeyHash hashed
        hashed = hash_key(self.k0, self.k1, given.data, given.size)
        cdef object high = hashed.high
        cdef object low = hashed.low
        return high.to_bytes(8, "little") + low.to_bytes(8, "little")

    def __len__(self):
        return self.count

    @property
    def size_bytes(self):
        return self.capacity * <Py_ssize_t>sizeof(MapSlot)
