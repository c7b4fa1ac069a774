# Kafka's compression types (gzip, snappy in xerial's framing, lz4 frames, zstd) by cramjam, which
# is imported at first use: a broker without compressed batches never loads it. Decompression
# writes into a buffer that grows by steps up to the caller's limit, so a small bomb can't use
# more memory than the limit.

from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize,
    PyByteArray_Resize)
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from kstore._fast.record.buffer cimport load_int32, read_uvarint, store_int32
from kstore._fast.record.memory cimport MemoryView, view_of

cdef enum:
    SMALLEST_GUESS = 65536
    GROWTH = 4
    XERIAL_HEADER_SIZE = 16
    XERIAL_BLOCK_SIZE = 32768

# Magic, version 1, oldest compatible version 1.
cdef const char* XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
cdef enum:
    XERIAL_MAGIC_SIZE = 8


class CompressionError(ValueError):
    """The data can't be decompressed, or exceeds the limit."""


cdef object _library():
    import cramjam
    return cramjam


cdef inline object _readable(const uint8_t* data, Py_ssize_t size):
    if size == 0:
        return b""                          # the library does not accept a NULL address
    return PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ)


cdef inline object _writable(bytearray into, Py_ssize_t at):
    return PyMemoryView_FromMemory(
        PyByteArray_AS_STRING(into) + at, len(into) - at, PyBUF_WRITE)


cdef int64_t _little_endian(const uint8_t* p, int size) noexcept nogil:
    cdef uint32_t low = 0
    cdef int i
    for i in range(size if size < 4 else 4):
        low |= <uint32_t>p[i] << (8 * i)
    return low


# The size that the frame claims (the low 32 bits), or -1. Only a hint for the first buffer.
cdef int64_t _declared_size(int codec, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef int flag
    cdef int at
    if codec == COMPRESSION_GZIP and size >= 18:
        return _little_endian(p + size - 4, 4)
    if codec == COMPRESSION_LZ4 and size >= 15 and (p[4] & 0x08):
        return _little_endian(p + 6, 4)
    if codec == COMPRESSION_ZSTD and size >= 14:
        flag = p[4] >> 6
        at = 5 + (0 if p[4] & 0x20 else 1) + ((1 << (p[4] & 3)) >> 1)
        if flag == 0:
            return p[at] if p[4] & 0x20 else -1
        return _little_endian(p + at, 1 << flag) + (256 if flag == 1 else 0)
    return -1


cdef bytearray _decompress_frames(object module, int codec, const uint8_t* data, Py_ssize_t size,
                                  int64_t max_bytes):
    cdef int64_t room = _declared_size(codec, data, size)
    cdef Py_ssize_t got
    cdef bytearray into
    if room <= 0:
        room = max(<int64_t>SMALLEST_GUESS, <int64_t>size * GROWTH)
    source = _readable(data, size)
    while True:
        room = min(room, max_bytes)
        into = PyByteArray_FromStringAndSize(NULL, room)
        try:
            got = module.decompress_into(source, into)
        except _library().DecompressionError as error:
            # A full buffer and bad data raise the same exception: only the largest buffer
            # distinguishes them.
            if room >= max_bytes:
                raise CompressionError(
                    f"cannot be decompressed to at most {max_bytes} bytes: {error}") from error
            room = max(room * GROWTH, <int64_t>SMALLEST_GUESS)
            into = None                     # before the next one is allocated
            continue
        if got != room:
            PyByteArray_Resize(into, got)
        return into


cdef Py_ssize_t _snappy_block_size(const uint8_t* p, Py_ssize_t size, int64_t max_bytes) except -1:
    cdef uint32_t declared
    if not read_uvarint(p, p + size, &declared):
        raise CompressionError("a snappy block does not start with its size")
    if declared > max_bytes:
        raise CompressionError(
            f"a snappy block holds {declared} bytes, the bound leaves {max_bytes}")
    # Snappy can't expand more than 64 bytes from 3 (a copy), so a block that claims more is bad.
    if <int64_t>declared > <int64_t>size * 64:
        raise CompressionError(f"a snappy block of {size} bytes claims to hold {declared}")
    return declared


cdef int _snappy_block(object module, const uint8_t* p, Py_ssize_t size, bytearray into,
                       Py_ssize_t at,
                       Py_ssize_t expected) except -1:
    try:
        got = module.decompress_raw_into(_readable(p, size), _writable(into, at))
    except _library().DecompressionError as error:
        raise CompressionError(f"a snappy block cannot be decompressed: {error}") from error
    if got != expected:
        raise CompressionError(f"a snappy block holds {got} bytes and claims {expected}")
    return 0


cdef bytearray _decompress_snappy(const uint8_t* data, Py_ssize_t size, int64_t max_bytes):
    cdef object module = _library().snappy
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t block
    cdef int32_t length
    cdef bint framed = size >= XERIAL_HEADER_SIZE and memcmp(data, XERIAL_HEADER,
            XERIAL_MAGIC_SIZE) == 0
    cdef bytearray into
    if not framed:
        block = _snappy_block_size(data, size, max_bytes)
        into = PyByteArray_FromStringAndSize(NULL, block)
        _snappy_block(module, data, size, into, 0, block)
        return into
    # First the sizes, then the blocks: one buffer of the exact size.
    p += XERIAL_HEADER_SIZE
    while p < end:
        length = load_int32(p) if end - p >= 4 else -1
        if length < 0 or length > end - p - 4:
            raise CompressionError(f"a snappy chunk at byte {p - data} is longer than the data")
        total += _snappy_block_size(p + 4, length, max_bytes - total)
        p += 4 + length
    into = PyByteArray_FromStringAndSize(NULL, total)
    total = 0
    p = data + XERIAL_HEADER_SIZE
    while p < end:
        length = load_int32(p)
        block = _snappy_block_size(p + 4, length, max_bytes)
        _snappy_block(module, p + 4, length, into, total, block)
        total += block
        p += 4 + length
    return into


cdef bytearray decompress_memory(int codec, const uint8_t* data, Py_ssize_t size,
                                 int64_t max_bytes):
    if codec == COMPRESSION_SNAPPY:
        return _decompress_snappy(data, size, max_bytes)
    if codec == COMPRESSION_GZIP:
        return _decompress_frames(_library().gzip, codec, data, size, max_bytes)
    if codec == COMPRESSION_LZ4:
        return _decompress_frames(_library().lz4, codec, data, size, max_bytes)
    if codec == COMPRESSION_ZSTD:
        return _decompress_frames(_library().zstd, codec, data, size, max_bytes)
    raise CompressionError(f"compression type {codec} is unknown: use 1 to 4")


cdef bytes _compress_snappy(const uint8_t* data, Py_ssize_t size):
    cdef object module = _library().snappy
    cdef list parts = [XERIAL_HEADER[:XERIAL_HEADER_SIZE]]
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t step
    cdef uint8_t[4] length
    while at < size:
        step = min(<Py_ssize_t>XERIAL_BLOCK_SIZE, size - at)
        block = bytes(module.compress_raw(_readable(data + at, step)))
        store_int32(length, <int32_t>len(block))
        parts.append((<char*>length)[:4])
        parts.append(block)
        at += step
    return b"".join(parts)


# level < 0 is the codec's default; zstd has negative levels, and only -1 is its default.
cdef object compress_memory(int codec, int level, const uint8_t* data, Py_ssize_t size):
    cdef object source = _readable(data, size)
    if codec == COMPRESSION_GZIP:
        return _library().gzip.compress(source, 6 if level < 0 else level)
    if codec == COMPRESSION_SNAPPY:
        return _compress_snappy(data, size)
    if codec == COMPRESSION_LZ4:
        # Kafka's Java reader refuses frames whose blocks refer to each other.
        frame = _library().lz4.Compressor(
            level=4 if level < 0 else level, content_checksum=False, block_linked=False)
        frame.compress(bytes(source))
        return frame.finish()
    if codec == COMPRESSION_ZSTD:
        return _library().zstd.compress(source, 3 if level == -1 else level)
    raise CompressionError(f"compression type {codec} is unknown: use 1 to 4")


def decompress(int codec, data, int64_t max_bytes):
    cdef MemoryView given = view_of(data)
    return decompress_memory(codec, given.data, given.size, max_bytes)


def compress(int codec, data, int level=-1):
    cdef MemoryView given = view_of(data)
    return bytes(compress_memory(codec, level, given.data, given.size))
