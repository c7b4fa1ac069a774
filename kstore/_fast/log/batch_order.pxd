# The order of the batches of a log.

from libc.stdint cimport int32_t, int64_t

from kstore._fast.log.epoch_cache cimport EpochCache
from kstore._fast.record.batch cimport BatchInfo

# What the next batch's header must agree with, since its CRC covers neither its base offset nor its
# leader epoch.
cdef struct Order:
    int64_t expected                # its base offset must not be below this
    int64_t limit                   # its last offset must be below this
    int32_t epoch                   # its leader epoch; -1: any
    int64_t epoch_until             # the epoch holds for batches that begin below this offset

# Whether a batch follows the previous one with the same epoch, as nearly all do. Otherwise ask
# `fits`.
cdef inline bint goes_on(const BatchInfo* info, Order* order) noexcept nogil:
    if info.base_offset < order.expected or info.last_offset_delta < 0 \
            or info.base_offset >= min(order.limit, order.epoch_until) \
            or info.last_offset_delta >= order.limit - info.base_offset \
            or info.partition_leader_epoch != order.epoch:
        return False
    order.expected = info.base_offset + info.last_offset_delta + 1
    return True

# For batches from the expected offset on that end below limit.
cdef int begin_order(
    EpochCache epochs, int64_t expected, int64_t limit, Order* order) except -1
cdef bint fits(EpochCache epochs, const BatchInfo* info, Order* order) except -1 nogil
