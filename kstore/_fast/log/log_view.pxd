# The contents of one log, and how to find an offset.

from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.disk.page_reader cimport ColdRead, PageReader
from kstore._fast.record.batch cimport BatchInfo
from kstore._fast.log.batch_order cimport Order
from kstore._fast.log.epoch_cache cimport EpochCache
from kstore._fast.log.log_segment cimport LogSegment
from kstore._fast.log.producer_table cimport ProducerTable
from kstore._fast.log.read_hints cimport ReadHints
from kstore._fast.log.segment_file cimport SegmentFile

cdef enum:
    HEADER_WINDOW = 8192

# Part of a segment, to look at batch headers.
cdef struct HeaderWindow:
    int64_t start
    int64_t size
    uint8_t[8192] bytes

cdef struct Slice:
    int64_t position                # in the segment file
    int64_t size_bytes              # whole batches
    # of the first batch in it, or the requested offset if that is cheaper
    int64_t base_offset
    int64_t next_offset             # where to continue reading: after the last batch in it

cdef class LogView:
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset
    # without replicas: the high watermark is the visible end
    cdef public bint follows_end
    # with flush=always: readers see only what is on disk
    cdef public bint shows_durable
    cdef public int64_t durable_offset      # every record below it is on disk
    cdef readonly list segments             # LogSegment, ascending
    cdef readonly LogSegment active         # the last one
    cdef readonly EpochCache epochs
    cdef readonly ProducerTable producers
    cdef object owner                       # kstore.log's Log: index pages, rolls, errors
    cdef int64_t index_interval_bytes
    cdef ReadHints hints
    cdef public int damages_found           # increases with each newly known damaged range
    cdef int cuts                           # increases when the segments change, before a file does
    # The thread that is reading and must not wait for the disk; 0: none. Its reads raise
    # NotInMemory instead of waiting (slice_checks).
    cdef unsigned long hurried
    cdef readonly PageReader pages          # of the log dir; None: readers may wait
    cdef tuple judged                       # segment, position, error: found by a thread
    cdef ColdRead examining                 # a thread examines damage that a read met

    # The longest run of complete batches in one segment, from the batch with the offset on, below
    # max_offset, of at most max_bytes (at least one complete batch with min_one). Returns the file,
    # or None if there is nothing to read at offset. out_of_range: whether offset is outside
    # [log_start_offset, log_end_offset]. Raises only OSError.
    cdef SegmentFile locate(self, int64_t offset, int64_t max_offset, int64_t max_bytes,
                            bint min_one,
                            Slice* out, bint* out_of_range)
    cdef SegmentFile locate_good(self, int64_t offset, int64_t max_offset, int64_t max_bytes,
                                 bint min_one, Slice* out)
    cdef int load_index(self, LogSegment segment, int64_t offset, bint wrong) except -1
    cdef object corrupt(self, LogSegment segment, int64_t position)
    cdef SegmentFile file_of(self, LogSegment segment)
    cdef LogSegment segment_of(self, int64_t offset)
    cdef Py_ssize_t segment_index(self, int64_t offset) noexcept
    cdef LogSegment find_start(self, int64_t offset, int64_t* position, int64_t* base_offset)
    cdef int64_t find_end(self, LogSegment segment, int64_t position, int64_t max_offset,
                          int64_t max_bytes,
                          bint min_one, Slice* out) except -1
    cdef int64_t indexed_position(self, LogSegment segment, int64_t offset,
                                  HeaderWindow* window) except -1
    cdef int64_t indexed_batch(self, LogSegment segment, int64_t position,
                               HeaderWindow* window) except -1
    cdef bint peek(self, LogSegment segment, int64_t at, HeaderWindow* window,
                   BatchInfo* info) except -1
    cdef bint skip_to(self, LogSegment segment, int64_t* position, int64_t offset,
                      HeaderWindow* window, BatchInfo* info) except -1
    cdef int64_t behind_damage(self, LogSegment segment, int64_t position,
                               int64_t offset) except -1
    cdef int note_batch(self, LogSegment segment, const BatchInfo* info, int64_t position,
                        bint epochs) except -1 nogil
    cdef int note_producer(self, const uint8_t* p, const BatchInfo* info) except -1
    cdef int64_t visible_end(self) noexcept
    cdef int64_t reached_by(self, int64_t offset) noexcept
    cdef int note_end(self) except -1
    cdef int32_t epoch_before(self, int64_t offset) noexcept
    cdef Py_ssize_t count_good(self, const uint8_t* p, Py_ssize_t size, Order* order) except -1
    cdef int scan_chunk(self, LogSegment segment, const uint8_t* p, Py_ssize_t size,
                        int64_t position,
                        int64_t producers_from, int mode, int64_t limit, int32_t* epoch,
                        Py_ssize_t* used) except -1 nogil


cdef inline bint must_hurry(LogView log) noexcept:
    return log.hurried != 0 and log.hurried == PyThread_get_thread_ident()
