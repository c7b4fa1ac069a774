"""Waits for a partition to change (to grow, or to get another leader), for Python code."""

from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.partition_events cimport Waiter


cdef class PartitionWait(Waiter):
    """Calls back on the loop each time that a partition changes, until close()."""

    cdef Partition partition
    cdef object callback

    def __init__(self, Partition partition not None, callback):
        self.partition = partition
        self.callback = callback
        partition.waiters[self] = None

    cdef int check(self) except -1:
        self.callback()
        return 0

    def close(self):
        """Stop waiting."""
        self.partition.waiters.pop(self, None)
