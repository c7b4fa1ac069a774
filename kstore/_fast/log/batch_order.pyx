# The order of the batches of a log: a CRC covers neither a batch's base offset nor its leader
# epoch, so these are checked against the neighbours and the epoch cache. It reads no file.

from libc.stdint cimport int64_t

cdef int64_t NO_END = 0x7FFFFFFFFFFFFFFFLL


cdef int begin_order(
    EpochCache epochs, int64_t expected, int64_t limit, Order* order
) except -1:
    order.expected = expected
    order.limit = limit
    return turn_epoch(epochs, expected, order)


# The leader epoch of the records from an offset on, and its end. Before the log start offset it is
# no longer known.
cdef int turn_epoch(EpochCache epochs, int64_t offset, Order* order) except -1:
    cdef int at = epochs.count - 1
    order.epoch = -1
    order.epoch_until = NO_END
    while at >= 0 and epochs.entries[at].start_offset > offset:
        order.epoch_until = epochs.entries[at].start_offset
        at -= 1
    if at >= 0:
        order.epoch = epochs.entries[at].epoch
    return 0


# Whether a batch follows the previous one; if so, the next one is expected after it.
cdef bint fits(EpochCache epochs, const BatchInfo* info, Order* order) except -1 nogil:
    if info.base_offset < order.expected or info.base_offset >= order.limit \
            or info.last_offset_delta < 0 \
            or info.last_offset_delta >= order.limit - info.base_offset:
        return False
    if info.base_offset >= order.epoch_until:
        with gil:
            turn_epoch(epochs, info.base_offset, order)
    if info.partition_leader_epoch != order.epoch and order.epoch >= 0 \
            and info.partition_leader_epoch != -1:
        return False
    order.expected = info.base_offset + info.last_offset_delta + 1
    return True
