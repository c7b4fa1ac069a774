"""The runs of equal offsets of a share-partition, in one array: search, split and join.
in_flight.pyx changes the records' states.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memmove

NO_DEADLINE = -1


cdef class Runs:
    """Each offset from ``start_offset`` to ``end_offset``, both included, is in one run. If there
    are none, the end offset is the start offset - 1.
    """

    def __cinit__(self):
        self.runs = NULL
        self.size = self.capacity = 0

    def __dealloc__(self):
        PyMem_Free(self.runs)

    def __init__(self, int64_t start_offset, batches=()):
        cdef int64_t first, last
        cdef int state, deliveries
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        for first, last, state, deliveries in batches:
            if last <= self.end_offset:
                continue
            if first > self.end_offset + 1:
                self.append(first - 1, AVAILABLE, 0)
            self.append(last, state, deliveries)
        self.compact()

    def __len__(self):
        return self.size

    def rows(self):
        """(first offset, last offset, state, deliveries, owner, deadline, token) of each run."""
        cdef Py_ssize_t i
        cdef Run* run
        found = []
        for i in range(self.size):
            run = &self.runs[i]
            found.append((run.first, run.last, run.state, run.deliveries, run.owner, run.deadline,
                          run.token))
        return found

    # -- the array

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity
        if self.size + more > self.capacity:
            capacity = max(16, 2 * self.capacity, self.size + more)
            runs = <Run*> PyMem_Realloc(self.runs, capacity * sizeof(Run))
            if runs == NULL:
                raise MemoryError
            self.runs = runs
            self.capacity = capacity
        return 0

    cdef Run* append(self, int64_t last, int8_t state, int32_t deliveries) except NULL:
        """A run from the end offset + 1 to an offset."""
        cdef Run* run
        self.grow(1)
        run = &self.runs[self.size]
        run.first, run.last = self.end_offset + 1, last
        run.owner, run.deadline = 0, NO_DEADLINE
        run.deliveries, run.token, run.state, run.lasts = deliveries, 0, state, False
        run.batch, run.batch_size = run.first, <int32_t> min(last - run.first + 1, 1 << 30)
        self.size += 1
        self.end_offset = last
        return run

    cdef Py_ssize_t find(self, int64_t offset) noexcept:
        """The index of the run with this offset, which is in flight."""
        cdef Py_ssize_t low = 0, high = self.size - 1, middle
        while low < high:
            middle = (low + high) >> 1
            if self.runs[middle].last < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Py_ssize_t isolate(self, Py_ssize_t i, int64_t first, int64_t last) except -1:
        """Split the run i so that one run has exactly these offsets, which it contains. Returns its
        index.
        """
        cdef Py_ssize_t more
        cdef Run* run = &self.runs[i]
        more = (first > run.first) + (last < run.last)
        if more == 0:
            return i
        self.grow(more)
        run = &self.runs[i]
        memmove(run + 1 + more, run + 1, (self.size - i - 1) * sizeof(Run))
        self.size += more
        if last < run.last:
            run[more] = run[0]
            run[more].first = last + 1
        if first > run.first:
            run[1] = run[0]
            run.last = first - 1
            i += 1
            run += 1
        run.first, run.last = first, last
        return i

    cdef int compact(self) except -1:
        """Drop finished runs at the start, and join equal neighbours."""
        cdef Py_ssize_t i = 0, kept = 0
        cdef Run* run
        cdef Run* before
        while i < self.size and is_complete(&self.runs[i], 0):
            i += 1
        for i in range(i, self.size):
            run = &self.runs[i]
            if kept:
                before = &self.runs[kept - 1]
                if alike(before, run):
                    before.last = run.last
                    continue
            self.runs[kept] = run[0]
            kept += 1
        self.size = kept
        self.start_offset = self.runs[0].first if kept else self.end_offset + 1
        return 0

    # -- storing changes

    cdef int64_t start_of(self, int32_t token) noexcept:
        cdef Py_ssize_t i
        for i in range(self.size):
            if not is_complete(&self.runs[i], token):
                return self.runs[i].first
        return self.end_offset + 1

    def commit(self, int32_t token):
        """A token's changes were stored."""
        cdef Py_ssize_t i
        for i in range(self.size):
            if self.runs[i].token == token:
                self.runs[i].token = 0
                self.runs[i].lasts = False
        self.compact()

    def roll_back(self, int32_t token):
        """A token's changes could not be stored: the records are acquired as before, except those
        that were released by timeout or with their member.
        """
        cdef Py_ssize_t i
        cdef Run* run
        for i in range(self.size):
            run = &self.runs[i]
            if run.token == token:
                run.token = 0
                if not run.lasts:
                    run.state = ACQUIRED
                run.lasts = False
        self.compact()

    def set_log_start(self, int64_t offset):
        """The log begins at this offset: earlier offsets are not in flight."""
        cdef Py_ssize_t i = 0
        if offset <= self.start_offset:
            return
        if offset > self.end_offset:
            self.size = 0
            self.end_offset = offset - 1
        else:
            i = self.find(offset)
            memmove(self.runs, self.runs + i, (self.size - i) * sizeof(Run))
            self.size -= i
            self.runs[0].first = max(self.runs[0].first, offset)
        self.start_offset = offset
        self.compact()


cdef inline bint alike(Run* one, Run* other) noexcept:
    if one.state != other.state or one.deliveries != other.deliveries or one.token != other.token:
        return False
    if one.batch != other.batch and one.state < ACKNOWLEDGED:
        return False
    if one.state == ACQUIRED or one.token:
        return (one.owner == other.owner and one.deadline == other.deadline
                and one.lasts == other.lasts)
    return True
