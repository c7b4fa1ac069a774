# The mapped file of a queue's state: its header, its slots, and their owners. A slot changes by
# aligned stores, its word last, so a process may be killed at any point.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from kstore._fast.disk.threads cimport pthread_mutex_t

cdef extern from * nogil:
    """
    #ifndef KSTORE_LEASES
    #define KSTORE_LEASES
    #include <pthread.h>
    #include <stddef.h>
    #include <stdint.h>
    #define KSTORE_OWNERS 768
    struct kstore_slot { uint64_t word; int64_t due_ms; };
    struct kstore_leases {
        char magic[8];
        uint32_t version;
        uint32_t slot_bytes;
        unsigned char topic_id[16];
        unsigned char boot_id[16];
        int64_t capacity;
        int64_t floor, head;
        int64_t leased, waiting, dead;
        int64_t next_lease_end_ms, next_retry_ms;   /* not later than the first of them */
        int64_t acked, expired, lost;
        int64_t cuts;                               /* how often the log was truncated */
        uint32_t watched;                           /* a worker waits for a message */
        uint32_t wake_ups;                          /* how often waiting workers were woken */
        char unused[360];
        pthread_mutex_t mutex;
        char unused_too[512 - sizeof(pthread_mutex_t)];
        uint32_t owners[KSTORE_OWNERS];             /* process ids; 0: none */
    };
    _Static_assert(offsetof(struct kstore_leases, mutex) == 512, "as the format says");
    _Static_assert(sizeof(struct kstore_leases) == 4096, "the header is a page");
    #endif
    """
    enum: KSTORE_OWNERS
    enum: KSTORE_WAKE_UPS_AT "offsetof(struct kstore_leases, wake_ups)"
    struct kstore_slot:
        uint64_t word
        int64_t due_ms
    struct kstore_leases:
        char magic[8]
        uint32_t version
        uint32_t slot_bytes
        unsigned char topic_id[16]
        unsigned char boot_id[16]
        int64_t capacity
        int64_t floor
        int64_t head
        int64_t leased
        int64_t waiting
        int64_t dead
        int64_t next_lease_end_ms
        int64_t next_retry_ms
        int64_t acked
        int64_t expired
        int64_t lost
        int64_t cuts
        uint32_t watched
        uint32_t wake_ups
        pthread_mutex_t mutex
        uint32_t owners[768]

cdef enum:
    FIRST_CAPACITY = 4096
    LARGEST_CAPACITY = 1 << 24

    # The states of a slot's message.
    UNKNOWN = 0
    LEASED = 1
    WAITING = 2
    DONE = 3


# A slot's word: 2 bits state, 10 owner, 20 deliveries, and the low 32 bits of the offset.
cdef inline uint64_t word_of(int state, int owner, int deliveries, int64_t offset) noexcept nogil:
    return (<uint64_t>state << 62 | <uint64_t>owner << 52 | <uint64_t>deliveries << 32
            | <uint32_t>offset)


cdef inline int owner_of(uint64_t word) noexcept nogil:
    return <int>(word >> 52 & 1023)


cdef inline int deliveries_of(uint64_t word) noexcept nogil:
    return <int>(word >> 32 & 1048575)


# The state of this offset. A slot that still has an older offset says nothing about it.
cdef inline int state_of(uint64_t word, int64_t offset) noexcept nogil:
    return <int>(word >> 62) if <uint32_t>word == <uint32_t>offset else UNKNOWN


cdef class LeaseFile:
    cdef int fd
    cdef int owner
    cdef readonly bint closed
    cdef public int lock_ms         # how long to wait for another process's lock
    cdef kstore_leases* head
    cdef kstore_slot* slots
    cdef int64_t capacity
    # a message was given back since `enter`, and workers may wait for one
    cdef bint gave_back

    cdef int reserve(self, int64_t capacity) except -1
    cdef void* map_part(self, int64_t position, int64_t size_bytes) except NULL
    cdef int map_slots(self, int64_t capacity) except -1
    cdef int unmap_slots(self) noexcept
    cdef int unmap_all(self) noexcept
    cdef kstore_leases* opened(self) except NULL
    cdef int begin(self, bytes topic_id, int64_t start_offset) except -1
    cdef int check(self, bytes topic_id) except -1
    cdef int begin_boot(self, bytes boot_id) except -1
    cdef int grow(self, int64_t wanted) except -1
    cdef int enter(self) except -1
    cdef int leave(self) except -1
    cdef int claim_owner(self) except -1
    cdef int free_leases(self, int owner) noexcept
    cdef int recount(self) noexcept
    cdef int raise_floor(self) noexcept
    cdef int cut(self, int64_t end_offset) noexcept
