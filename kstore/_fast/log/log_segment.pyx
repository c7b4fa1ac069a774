# One segment of a log: its file (opened at first use), its bounds, and the part of its sparse index
# that is in memory. The rest is in LMDB, in pages that kstore.log writes and reads; this module
# packs them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from kstore._fast.disk.page_reader cimport PageReader
from kstore._fast.log.clock cimport now_ms
from kstore._fast.record.crc32c cimport crc32c, crc32c_update

from kstore._fast.disk.page_reader import NotInMemory

cdef enum:
    CHECK_AGAIN_MS = 600000     # what is compared with its neighbours
    SUMS_AGAIN_MS = 1000        # checksums, where a reader may have met a wrong one
    RESIDENT_FOR_MS = 500       # what was found in the page cache
    FRESH_FOR_MS = 15000        # what was appended
    FRESH_BYTES = 262144        # more is checked: that costs little beside sending it
    CHECKSUM_BYTES = 4              # behind each page of the index, little-endian

cdef int64_t NO_WINDOW = 0x7FFFFFFFFFFFFFFF


cdef inline bint covers(const CheckedPart* part, int64_t position, int64_t end,
                        int64_t for_ms) noexcept:
    return part.start <= position and end <= part.end and now_ms() - part.ms < for_ms


# Remembers one part: adjacent parts are added. Of two separate parts, the larger is kept.
cdef void extend(CheckedPart* part, int64_t position, int64_t end, int64_t for_ms) noexcept:
    cdef int64_t now = now_ms()
    if now - part.ms < for_ms:
        if position <= part.end and end >= part.start:
            part.start = min(part.start, position)
            part.end = max(part.end, end)
            return
        if end - position < part.end - part.start:
            return
    part.start = position
    part.end = end
    part.ms = now


cdef class LogSegment:
    def __init__(self, int64_t base_offset, str path not None, opener, *, int64_t size_bytes=0,
                 int64_t next_offset=-1, int64_t max_timestamp=-1, int64_t first_timestamp=-1,
                 int64_t created_ms=0, SegmentFile file=None):
        self.base_offset = base_offset
        self.path = path
        self.opener = opener
        self.handle = file
        self.size_bytes = size_bytes
        self.next_offset = base_offset if next_offset < 0 else next_offset
        self.max_timestamp = max_timestamp
        self.first_timestamp = first_timestamp
        self.created_ms = created_ms
        self.window_end = NO_WINDOW
        self.own_position = self.fresh_from = self.next_fresh_from = NO_WINDOW

    def __dealloc__(self):
        PyMem_Free(self.entries)

    cdef SegmentFile file(self):
        cdef SegmentFile opened
        if self.handle is None:
            opened = self.opener(self.path)
            if self.handle is None:
                self.handle = opened
            else:                           # another thread was first; appends know its size
                opened.close()
        return self.handle

    cdef int add_entry(self, int64_t base_offset, int64_t position) except -1:
        cdef IndexEntry* moved
        cdef IndexEntry* entry
        if self.count == self.room:
            moved = <IndexEntry*>PyMem_Realloc(self.entries,
                                               (self.room * 2 + 16) * sizeof(IndexEntry))
            if moved == NULL:
                raise MemoryError
            self.entries = moved
            self.room = self.room * 2 + 16
        entry = &self.entries[self.count]
        entry.offset_delta = <uint32_t>(base_offset - self.base_offset)
        entry.position = <uint32_t>position
        entry.max_timestamp = self.max_timestamp
        self.count += 1
        self.bytes_since_entry = 0
        return 0

    cdef int64_t floor_position(self, int64_t offset) noexcept:
        cdef int low = 0
        cdef int high = self.count
        cdef int middle
        cdef int64_t delta = offset - self.base_offset
        if offset >= self.window_end:
            return -1
        while low < high:
            middle = (low + high) // 2
            if <int64_t>self.entries[middle].offset_delta <= delta:
                low = middle + 1
            else:
                high = middle
        if low:
            return self.entries[low - 1].position
        return 0 if self.first_entry == 0 else -1

    cdef int64_t floor_below(self, int64_t position, int64_t* offset) noexcept:
        cdef int low = 0
        cdef int high = self.count
        cdef int middle
        while low < high:
            middle = (low + high) // 2
            if <int64_t>self.entries[middle].position <= position:
                low = middle + 1
            else:
                high = middle
        if low:
            offset[0] = self.base_offset + self.entries[low - 1].offset_delta
            return self.entries[low - 1].position
        offset[0] = self.base_offset
        return 0 if self.first_entry == 0 else -1

    cdef bint was_checked(self, int64_t position, int64_t end) noexcept:
        return covers(&self.order_checked, position, end, CHECK_AGAIN_MS)

    cdef void note_checked(self, int64_t position, int64_t end) noexcept:
        extend(&self.order_checked, position, end, CHECK_AGAIN_MS)

    cdef bint sums_checked(self, int64_t position, int64_t end) noexcept:
        return covers(&self.sums, position, end, SUMS_AGAIN_MS)

    cdef void note_sums(self, int64_t position, int64_t end) noexcept:
        extend(&self.sums, position, end, SUMS_AGAIN_MS)

    cdef void forget_checked(self) noexcept:
        self.order_checked.start = self.order_checked.end = 0
        self.sums.start = self.sums.end = 0

    cdef void note_fresh(self, int64_t position, int64_t now) noexcept:
        if now - self.next_fresh_ms < 2 * FRESH_EACH_MS:
            self.fresh_from = self.next_fresh_from
            self.fresh_ms = self.next_fresh_ms
        else:
            self.fresh_from = position
            self.fresh_ms = now
        self.next_fresh_from = position
        self.next_fresh_ms = now

    cdef bint is_fresh(self, int64_t position) noexcept:
        return position >= self.fresh_from and self.size_bytes - position <= FRESH_BYTES \
            and now_ms() - self.fresh_ms < FRESH_FOR_MS

    cdef bint is_known_resident(self, int64_t position, int64_t end) noexcept:
        return covers(&self.resident, position, end, RESIDENT_FOR_MS)

    cdef void note_resident(self, int64_t position, int64_t end) noexcept:
        extend(&self.resident, position, end, RESIDENT_FOR_MS)

    cdef int must_be_there(
        self, object log, PageReader pages, int64_t position, int64_t size_bytes
    ) except -1:
        cdef int64_t end = position + size_bytes
        if self.is_fresh(position) or self.is_known_resident(position, end) \
                or not self.handle.plain or pages.has(self.handle.fd, position, size_bytes):
            return 0
        raise NotInMemory(log, self, "bytes", position)

    def seal(self):
        """No more appends. The records that this process has appended count as checked."""
        if self.own_position < self.size_bytes:
            self.note_checked(self.own_position, self.size_bytes)
        self.own_position = NO_WINDOW
        self.sealed = True

    def handle_or_open(self):
        return self.file()

    @property
    def is_open(self):
        return self.handle is not None

    @property
    def durable_bytes(self):
        return self.handle.durable_bytes if self.handle is not None else 0

    @property
    def entry_count(self):
        return self.first_entry + self.count

    def close(self):
        cdef SegmentFile handle = self.handle
        self.handle = None
        if handle is not None:
            handle.close()

    def packed(self, int64_t start, int64_t stop):
        """The entries with these numbers, packed."""
        cdef int64_t at = start - self.first_entry
        if at < 0 or stop < start or stop - self.first_entry > self.count:
            raise IndexError(
                f"entries {start} to {stop} of segment {self.base_offset} are not in memory")
        return PyBytes_FromStringAndSize(<char*>(self.entries + at),
                                         (stop - start) * sizeof(IndexEntry))

    def offset_of_entry(self, int64_t number):
        cdef int64_t at = number - self.first_entry
        if at < 0 or at >= self.count:
            raise IndexError(f"entry {number} of segment {self.base_offset} is not in memory")
        return self.base_offset + self.entries[at].offset_delta

    def load(self, bytes data not None, int64_t first_entry, int64_t window_end=NO_WINDOW):
        """Replaces the entries in memory with these packed entries."""
        cdef Py_ssize_t size = len(data)
        cdef int n = <int>(size // <Py_ssize_t>sizeof(IndexEntry))
        cdef IndexEntry* moved = NULL
        if n * <Py_ssize_t>sizeof(IndexEntry) != size:
            raise ValueError(f"an index page has {size} bytes: not a whole number of entries")
        if n:
            moved = <IndexEntry*>PyMem_Realloc(self.entries, n * sizeof(IndexEntry))
            if moved == NULL:
                raise MemoryError
            self.entries = moved
            self.room = n
            memcpy(moved, PyBytes_AS_STRING(data), size)
        self.count = n
        self.first_entry = first_entry
        self.window_end = window_end

    def load_pages(self, list rows not None, int64_t first_entry, int64_t window_end=NO_WINDOW):
        """Replaces the entries in memory with those of these (key, page with checksum). If a page
        is damaged, nothing is replaced, and its key is returned.
        """
        cdef bytes key, page, data
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t one
        cdef const uint8_t* p
        cdef uint8_t* into
        cdef uint32_t crc
        for key, page in rows:
            one = len(page) - CHECKSUM_BYTES
            if one <= 0 or one % <Py_ssize_t>sizeof(IndexEntry):
                return key
            p = <const uint8_t*>PyBytes_AS_STRING(key)
            crc = crc32c(p, len(key))
            p = <const uint8_t*>PyBytes_AS_STRING(page)
            crc = crc32c_update(crc, p, one)
            p += one
            if crc != p[0] | p[1] << 8 | p[2] << 16 | <uint32_t>p[3] << 24:
                return key
            size += one
        data = PyBytes_FromStringAndSize(NULL, size)
        into = <uint8_t*>PyBytes_AS_STRING(data)
        for key, page in rows:
            one = len(page) - CHECKSUM_BYTES
            memcpy(into, PyBytes_AS_STRING(page), one)
            into += one
        self.load(data, first_entry, window_end)
        return None

    def all_entries(self):
        """The entries in memory, packed."""
        return PyBytes_FromStringAndSize(<char*>self.entries, self.count * sizeof(IndexEntry))

    def prepend(self, bytes data not None):
        """Puts packed entries, which end where those in memory begin, before them."""
        cdef bytes tail = PyBytes_FromStringAndSize(<char*>self.entries,
                                                    self.count * sizeof(IndexEntry))
        cdef int64_t more = <int64_t>(len(data) // <Py_ssize_t>sizeof(IndexEntry))
        cdef int64_t first = self.first_entry - more
        if first < 0:
            raise ValueError(f"{len(data)} bytes of index entries before entry {self.first_entry}")
        self.load(data + tail, first)

    def prepend_missing(self, bytes pages not None):
        """Adds the missing entries before those in memory, from the packed entries from the first
        one on; False if they are too few. It is atomic: readers need no lock, which an append
        may hold while it waits for the disk.
        """
        cdef int64_t size = self.first_entry * <int64_t>sizeof(IndexEntry)
        if len(pages) < size:
            return False
        self.prepend(pages[:size])
        return True

    def rewind(self, int64_t position):
        """Goes back to the last index entry at or before a position,
        to scan from there; returns where
        that is. All entries have to be in memory."""
        cdef IndexEntry* entry
        while self.count and <int64_t>self.entries[self.count - 1].position >= position:
            self.count -= 1
        if self.count:
            self.count -= 1
            entry = &self.entries[self.count]
            self.size_bytes = entry.position
            self.next_offset = self.base_offset + entry.offset_delta
            self.max_timestamp = entry.max_timestamp
            self.bytes_since_entry = NO_WINDOW >> 1         # the scan makes the entry again
        else:
            self.size_bytes = 0
            self.next_offset = self.base_offset
            self.max_timestamp = self.first_timestamp = -1
            self.bytes_since_entry = 0
        self.persisted = min(self.persisted, self.first_entry + self.count)
        self.window_end = NO_WINDOW
        self.forget_checked()
        return self.size_bytes

    def mark(self):
        return (self.count, self.size_bytes, self.next_offset, self.max_timestamp,
                self.first_timestamp, self.bytes_since_entry)

    def go_back(self, tuple mark not None):
        """Drops the entries since the mark."""
        (self.count, self.size_bytes, self.next_offset, self.max_timestamp,
         self.first_timestamp, self.bytes_since_entry) = mark

    def copy(self):
        """A segment with the same file, bounds, entries in memory and damages."""
        cdef LogSegment other = LogSegment(
            self.base_offset, self.path, self.opener, size_bytes=self.size_bytes,
            next_offset=self.next_offset, max_timestamp=self.max_timestamp,
            first_timestamp=self.first_timestamp, created_ms=self.created_ms, file=self.file())
        other.load(self.all_entries(), self.first_entry, self.window_end)
        other.bytes_since_entry = self.bytes_since_entry
        other.damages = self.damages
        other.sealed = self.sealed
        return other

    def take(self, LogSegment other not None):
        """Takes over the bounds, the entries and the damages of a copy. It is atomic: readers need
        no lock.
        """
        self.load(other.all_entries(), other.first_entry, other.window_end)
        self.size_bytes = other.size_bytes
        self.next_offset = other.next_offset
        self.max_timestamp = other.max_timestamp
        self.first_timestamp = other.first_timestamp
        self.bytes_since_entry = other.bytes_since_entry
        self.damages = other.damages
        self.persisted = min(self.persisted, self.first_entry + self.count)
        self.forget_checked()

    def drop_entries(self, int64_t upto):
        """Frees the entries below number upto: LMDB has them."""
        cdef int64_t n = min(upto - self.first_entry, <int64_t>self.count)
        if n > 0:
            memmove(self.entries, self.entries + n, (self.count - n) * sizeof(IndexEntry))
            self.count -= <int>n
            self.first_entry += n
            if self.room > 64 and self.count < self.room // 4:
                self.room = self.count + 16
                self.entries = <IndexEntry*>PyMem_Realloc(self.entries,
                                                          self.room * sizeof(IndexEntry))

    def offset_before_timestamp(self, int64_t timestamp_ms):
        """The largest indexed offset before which no record has this timestamp or a later one."""
        cdef int low = 0
        cdef int high = self.count
        cdef int middle
        if self.window_end != NO_WINDOW or self.first_entry != 0 or (self.complete
                                                                     and self.count == 0):
            return -1
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].max_timestamp < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + self.entries[low - 1].offset_delta if low else self.base_offset

    def index_entries(self):
        cdef int i
        return [(self.base_offset + self.entries[i].offset_delta, self.entries[i].position,
                 self.entries[i].max_timestamp) for i in range(self.count)]

    def __repr__(self):
        return (f"LogSegment({self.base_offset}..{self.next_offset}, {self.size_bytes} bytes"
                f"{', sealed' if self.sealed else ''})")
