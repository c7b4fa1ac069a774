"""Compressed batches of clients: their claimed size, its limit, and a check of their records
through a window, so that a thread or the loop needs memory for only a window and the largest
record.

kstore/broker/runtime/log_dirs/unpacking.py decides where and when batches are checked; the log core
handles bad batches. Accepted batches are decompressed as a whole (compression.pyx).
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcmp, memcpy, memmove, memset

from kstore._fast.record.batch cimport (
    BATCH_BAD_COMPRESSION, BATCH_BAD_RECORD, BATCH_BAD_TIMESTAMP, BATCH_HEADER_SIZE, BATCH_OK,
    BATCH_TOO_LARGE, COMPRESSION_MASK, BatchInfo, RecordWalk, check_max_timestamp, is_compressed,
    read_batch_header, validate_batch, walk_some)
from kstore._fast.record.buffer cimport load_int32, read_uvarint, read_varint, read_varlong
from kstore._fast.record.compression cimport (
    COMPRESSION_GZIP, COMPRESSION_LZ4, COMPRESSION_SNAPPY, COMPRESSION_ZSTD,
    MAX_DECOMPRESSED_BYTES, decompress_memory)
from kstore._fast.record.memory cimport MemoryView, view_of
from kstore._fast.record.recompress cimport recompressed

from kstore._fast.record.batch import InvalidBatchError
from kstore._fast.record.compression import CompressionError

cdef enum:
    WINDOW_BYTES = 65536
    PIECE_BYTES = 32768             # read from a stream at a time
    # A batch may always expand to this size, and to these multiples of max.message.bytes and of its
    # own size. Real records compress by less than 1:100; a producer of a larger batch gets an error
    # and splits it.
    LEAST_LIMIT_BYTES = 16777216
    MESSAGE_FACTOR = 32
    RATIO = 256
    LONGEST_VARINT = 5
    LONGEST_HEAD = 21               # of a record: length, attributes, time and offset delta
    APPEND_TIME = 8                 # among a batch's attributes
    XERIAL_HEADER_SIZE = 16
    ZSTD_MAGIC_SIZE = 4
    ZSTD_BLOCK_BYTES = 131072
    LZ4_RATIO = 255

cdef const char* XERIAL_MAGIC = b"\x82SNAPPY\x00"
cdef const char* ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
cdef const char* SKIPPABLE_MAGIC = b"\x2a\x4d\x18"


cdef int64_t max_unpacked_bytes(Py_ssize_t size, int64_t max_message_bytes) noexcept nogil:
    cdef int64_t least = max(<int64_t>LEAST_LIMIT_BYTES, max_message_bytes * MESSAGE_FACTOR)
    return min(max(least, <int64_t>size * RATIO), <int64_t>MAX_DECOMPRESSED_BYTES)


# ---- the claimed size of a payload ----

cdef inline int64_t _little_endian(const uint8_t* p, int size) noexcept nogil:
    cdef int64_t value = 0
    cdef int i
    for i in range(size):
        value |= <int64_t>p[i] << (8 * i)
    return value


cdef int64_t claimed_bytes(int codec, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    if codec == COMPRESSION_GZIP:
        return -1 if size < 18 else _little_endian(p + size - 4, 4)
    if codec == COMPRESSION_SNAPPY:
        return _snappy_bytes(p, size)
    if codec == COMPRESSION_LZ4:
        return _lz4_bytes(p, p + size)
    if codec == COMPRESSION_ZSTD:
        return _zstd_bytes(p, p + size)
    return -1


cdef int64_t _snappy_bytes(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* end = p + size
    cdef bint framed = size >= XERIAL_HEADER_SIZE and memcmp(p, XERIAL_MAGIC, 8) == 0
    cdef uint32_t declared = 0
    cdef int64_t total = 0
    cdef int32_t length
    if not framed:
        return <int64_t>declared if read_uvarint(p, end, &declared) else -1
    p += XERIAL_HEADER_SIZE
    while p < end:
        length = load_int32(p) if end - p >= 4 else -1
        if length < 0 or length > end - p - 4 or not read_uvarint(p + 4, p + 4 + length, &declared):
            return -1
        total += declared
        p += 4 + length
    return total


cdef int64_t _lz4_bytes(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The sum over the frames' blocks, each at most the frame's block size."""
    cdef int64_t total = 0
    cdef int64_t block, largest
    cdef uint8_t flags
    while end - p >= 7:
        flags = p[4]
        largest = <int64_t>1 << (8 + 2 * ((p[5] >> 4) & 7))
        p += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            if end - p < 4:
                return -1
            block = _little_endian(p, 4)
            p += 4
            if block == 0:
                break
            total += min((block & 0x7FFFFFFF) * (1 if block >> 31 else LZ4_RATIO), largest)
            block = (block & 0x7FFFFFFF) + (4 if flags & 0x10 else 0)
            if block > end - p:
                return -1
            p += block
        if flags & 0x04:
            p += 4
    return total if p == end else -1


cdef int64_t _zstd_bytes(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The sum over the frames' blocks: a raw or run-length block has its size, a compressed one
    has at most 128 KB.
    """
    cdef int64_t total = 0
    cdef int64_t block, size
    cdef uint8_t flags
    cdef bint last
    while end - p >= ZSTD_MAGIC_SIZE + 1:
        if p[0] & 0xF0 == 0x50 and memcmp(p + 1, SKIPPABLE_MAGIC, 3) == 0:
            if end - p < 8 or _little_endian(p + 4, 4) > end - p - 8:
                return -1
            p += 8 + _little_endian(p + 4, 4)
            continue
        if memcmp(p, ZSTD_MAGIC, ZSTD_MAGIC_SIZE) != 0:
            return -1
        flags = p[4]
        size = (1 << (flags >> 6)) if flags >> 6 else (1 if flags & 0x20 else 0)
        size += ZSTD_MAGIC_SIZE + 1 + (0 if flags & 0x20 else 1) + ((1 << (flags & 3)) >> 1)
        if end - p < size:
            return -1
        p += size
        last = False
        while not last:
            if end - p < 3:
                return -1
            block = _little_endian(p, 3)
            last = block & 1
            size = block >> 3
            total += size if (block >> 1) & 3 < 2 else ZSTD_BLOCK_BYTES
            p += 3 + (1 if (block >> 1) & 3 == 1 else size)
            if p > end:
                return -1
        if flags & 0x04:
            p += 4
    return total if p == end else -1


# ---- streams ----

cdef class Input:
    """A payload in pieces, because the libraries copy unused input."""

    cdef bytes data
    cdef Py_ssize_t at

    def __init__(self, bytes data):
        self.data = data

    cdef bytes next(self):
        self.at += PIECE_BYTES
        return self.data[self.at - PIECE_BYTES:self.at]


cdef class Stream:
    """The decompressed bytes of a payload, piece by piece; b"" at the end. Bad data raises one of
    STREAM_ERRORS.
    """

    cdef object take(self):
        raise NotImplementedError("a stream knows its codec")


cdef class GzipStream(Stream):
    """Consecutive gzip members, as Java reads them."""

    cdef Input data
    cdef object rest
    cdef object member

    def __init__(self, bytes data):
        self.data = Input(data)
        self.rest = b""
        self.member = _gzip_member()

    cdef object take(self):
        while True:
            self.rest = self.rest or self.data.next()
            if self.member.eof:
                if not self.rest:
                    return b""
                self.member = _gzip_member()
            elif not self.rest:
                raise EOFError("the gzip stream has no end")
            piece = self.member.decompress(self.rest, PIECE_BYTES)
            self.rest = self.member.unused_data if self.member.eof else self.member.unconsumed_tail
            if piece:
                return piece


cdef class Lz4Stream(Stream):
    """One lz4 frame."""

    cdef Input data
    cdef object frame

    def __init__(self, bytes data):
        from lz4.frame import LZ4FrameDecompressor

        self.data = Input(data)
        self.frame = LZ4FrameDecompressor()

    cdef object take(self):
        while not self.frame.eof:
            given = self.data.next() if self.frame.needs_input else b""
            if self.frame.needs_input and not given:
                raise EOFError("the lz4 frame has no end")
            piece = self.frame.decompress(given, PIECE_BYTES)
            if piece:
                return piece
        if self.frame.unused_data or self.data.next():
            raise EOFError("bytes follow the lz4 frame")
        return b""


cdef class ZstdStream(Stream):
    """Zstd frames; claimed_bytes has checked that the last one is complete."""

    cdef object reader

    def __init__(self, data):
        from zstandard import ZstdDecompressor

        self.reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)

    cdef object take(self):
        return self.reader.read(PIECE_BYTES)


cdef class SnappyStream(Stream):
    """The chunks of xerial's framing, each as a whole; or one bare block."""

    cdef bytes data
    cdef Py_ssize_t at

    def __init__(self, bytes data):
        self.data = data

    cdef object take(self):
        cdef const uint8_t* p = <const uint8_t*><const char*>self.data
        cdef Py_ssize_t size = len(self.data)
        cdef int64_t length
        cdef Py_ssize_t at = self.at
        if at == size:
            return b""
        if size < XERIAL_HEADER_SIZE or memcmp(p, XERIAL_MAGIC, 8) != 0:
            self.at = size
            return decompress_memory(COMPRESSION_SNAPPY, p, size, MAX_DECOMPRESSED_BYTES)
        if at == 0:
            at = XERIAL_HEADER_SIZE
            if at == size:
                return b""
        length = load_int32(p + at)         # it fits: claimed_bytes has checked that
        self.at = at + 4 + length
        return decompress_memory(COMPRESSION_SNAPPY, p + at + 4, length, MAX_DECOMPRESSED_BYTES)


cdef object _gzip_member():
    import zlib

    return zlib.decompressobj(31)


cdef tuple _stream_errors(int codec):
    if codec == COMPRESSION_GZIP:
        import zlib

        return (zlib.error, EOFError)
    if codec == COMPRESSION_ZSTD:
        from zstandard import ZstdError

        return (ZstdError,)
    return (RuntimeError, EOFError, CompressionError)       # lz4 raises the first


cdef Stream _stream(int codec, bytes payload):
    if codec == COMPRESSION_GZIP:
        return GzipStream(payload)
    if codec == COMPRESSION_SNAPPY:
        return SnappyStream(payload)
    if codec == COMPRESSION_LZ4:
        return Lz4Stream(payload)
    return ZstdStream(payload)


# ---- the check ----

cdef class Verdict:
    """The result of the check of one batch."""

    def __init__(self, int status=-1, int64_t max_bytes=AT_ONCE_BYTES):
        self.status = status
        self.max_bytes = max_bytes


cdef int _walk(Stream stream, BatchInfo* info, int64_t max_bytes, Verdict verdict) except -1:
    """Check the records through a window, which grows only for a record that does not fit."""
    cdef bytearray window = bytearray(WINDOW_BYTES)
    cdef MemoryView piece
    cdef RecordWalk walk
    cdef Py_ssize_t fill = 0
    cdef Py_ssize_t used
    cdef int64_t total = 0
    cdef int32_t length = 0
    cdef int n
    cdef int status = BATCH_OK
    cdef const uint8_t* start
    walk.index = walk.keyless = 0
    walk.largest = 0
    while True:
        given = stream.take()
        piece = view_of(given)
        total += piece.size
        if total > max_bytes:
            return BATCH_TOO_LARGE
        if fill + piece.size > len(window):
            PyByteArray_Resize(window, max(fill + piece.size, 2 * <Py_ssize_t>len(window)))
        if piece.size:
            memcpy(PyByteArray_AS_STRING(window) + fill, piece.data, piece.size)
        fill += piece.size
        start = <const uint8_t*>PyByteArray_AS_STRING(window)
        with nogil:
            used = walk_some(start, start + fill, info.records_count, &walk, &status)
        if status != BATCH_OK:
            return status
        fill -= used
        if fill:
            memmove(PyByteArray_AS_STRING(window), start + used, fill)
        if piece.size == 0:
            break
        if walk.index == info.records_count and fill:
            return BATCH_BAD_RECORD
        n = read_varint(start, start + fill, &length)
        if n and length > max_bytes - total + fill:
            return BATCH_TOO_LARGE
    if fill or walk.index != info.records_count:
        return BATCH_BAD_RECORD
    verdict.has_keys = not walk.keyless
    status = check_max_timestamp(info, walk.largest)
    verdict.max_timestamp = info.max_timestamp
    return status


cdef int _look(MemoryView given, int64_t max_bytes, BatchInfo* info, Verdict verdict) except -1:
    cdef int codec
    cdef int64_t claimed
    cdef int status
    with nogil:
        status = validate_batch(given.data, given.data + given.size, info)
    if status != BATCH_OK or not is_compressed(info):
        return status
    codec = info.attributes & COMPRESSION_MASK
    claimed = claimed_bytes(
        codec, given.data + BATCH_HEADER_SIZE, info.size_bytes - BATCH_HEADER_SIZE)
    if claimed < 0:
        return BATCH_BAD_COMPRESSION
    if codec == COMPRESSION_SNAPPY and claimed > max_bytes:
        return BATCH_TOO_LARGE
    payload = (<const char*>given.data)[BATCH_HEADER_SIZE:info.size_bytes]
    try:
        return _walk(_stream(codec, payload), info, max_bytes, verdict)
    except _stream_errors(codec):
        return BATCH_BAD_COMPRESSION


def look_into(batch, int64_t max_bytes, int codec=-1, int level=-1):
    cdef Verdict verdict = Verdict()
    cdef MemoryView given = view_of(batch)
    cdef BatchInfo info
    verdict.status = _look(given, max_bytes, &info, verdict)
    if codec >= 0 and (verdict.status == BATCH_OK or verdict.status == BATCH_BAD_TIMESTAMP):
        verdict.anew = recompressed(given.data, given.size, codec, level, max_bytes)
    return verdict


def claim(int codec, payload):
    cdef MemoryView given = view_of(payload)
    return claimed_bytes(codec, given.data, given.size)


def limit(Py_ssize_t size_bytes, int64_t max_message_bytes):
    return max_unpacked_bytes(size_bytes, max_message_bytes)


# ---- the search for a time ----

cdef struct TimeSearch:
    int64_t timestamp_ms            # and from which offset on
    int64_t start_offset
    bint append_time                # all records have the batch's largest timestamp
    int64_t skip                    # missing bytes of a record
    int64_t offset                  # of the record that was found
    int64_t timestamp
    bint found
    bint bad


# Reads the records' heads in p..end; returns the number of bytes used. The rest is an incomplete
# head.
cdef Py_ssize_t scan_heads(
        const uint8_t* p, const uint8_t* end, BatchInfo* info, TimeSearch* search) noexcept nogil:
    cdef const uint8_t* begin = p
    cdef const uint8_t* at
    cdef int32_t length = 0
    cdef int32_t offset_delta = 0
    cdef int64_t timestamp_delta = 0
    cdef int n
    while p < end:
        if search.skip >= end - p:
            search.skip -= end - p
            return end - begin
        p += search.skip
        search.skip = 0
        at = p
        n = read_varint(at, end, &length)
        at += n
        if n and length >= 0 and at < end:
            n = read_varlong(at + 1, end, &timestamp_delta)
            at += 1 + n
            if n:
                n = read_varint(at, end, &offset_delta)
        else:
            n = 0
        if n == 0:
            search.bad = length < 0 or end - p >= LONGEST_HEAD
            return p - begin
        search.offset = info.base_offset + offset_delta
        search.timestamp = (
            info.max_timestamp if search.append_time else info.base_timestamp + timestamp_delta)
        if search.offset >= search.start_offset and search.timestamp >= search.timestamp_ms:
            search.found = True
            return p - begin
        p += read_varint(p, end, &length)
        search.skip = length
    return end - begin


cdef object _search(Stream stream, BatchInfo* info, TimeSearch* search):
    cdef const uint8_t* start
    cdef MemoryView view
    cdef Py_ssize_t done
    rest = b""
    while True:
        piece = stream.take()
        if not piece:
            break
        given = rest + bytes(piece)
        view = view_of(given)
        start = view.data
        with nogil:
            done = scan_heads(start, start + view.size, info, search)
        if search.found:
            return search.offset, search.timestamp
        if search.bad:
            break
        rest = given[done:]
    if rest or search.bad or search.skip:
        raise InvalidBatchError(BATCH_BAD_RECORD, 0)
    return None


def find_by_time(batch, int64_t timestamp_ms, int64_t start_offset):
    cdef MemoryView given = view_of(batch)
    cdef BatchInfo info
    cdef TimeSearch search
    cdef int codec
    cdef int status = read_batch_header(given.data, given.data + given.size, &info)
    if status != BATCH_OK:
        raise InvalidBatchError(status, 0)
    memset(&search, 0, sizeof(search))
    search.timestamp_ms = timestamp_ms
    search.start_offset = start_offset
    search.append_time = (info.attributes & APPEND_TIME) != 0
    codec = info.attributes & COMPRESSION_MASK
    payload = (<const char*>given.data)[BATCH_HEADER_SIZE:info.size_bytes]
    try:
        return _search(_stream(codec, payload), &info, &search)
    except _stream_errors(codec) as error:
        raise InvalidBatchError(BATCH_BAD_COMPRESSION, 0, str(error)) from error
