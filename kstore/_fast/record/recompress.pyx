"""Recompresses batches, for topics whose compression.type is not producer.

The records of a batch do not change; only their compression and the header do. The log checks
batches afterwards, so an invalid batch is left unchanged and refused there.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int16_t, int64_t, uint8_t
from libc.string cimport memcpy

from kstore._fast.record.batch cimport (
    BATCH_HEADER_SIZE, BATCH_OK, COMPRESSION_MASK, BatchInfo, check_batch, is_compressed,
    is_control, write_batch_header)
from kstore._fast.record.compression cimport (
    COMPRESSION_NONE, MAX_DECOMPRESSED_BYTES, compress_memory, decompress_memory)
from kstore._fast.record.compression import CompressionError
from kstore._fast.record.memory cimport MemoryView, view_of

cdef enum:
    LARGEST_BATCH = 0x7FFFFFFF


cdef bytearray recompressed(
    const uint8_t* data, Py_ssize_t size, int codec, int level, int64_t max_bytes
):
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef bytearray out = bytearray()
    cdef bint changed = False
    cdef BatchInfo info
    while p < end:
        if check_batch(p, end, &info) != BATCH_OK:
            return None
        if is_control(&info) or (info.attributes & COMPRESSION_MASK) == codec:
            out += (<const char*>p)[:info.size_bytes]
        else:
            try:
                again(out, p, info, codec, level, max_bytes)
            except CompressionError:
                return None
            changed = True
        p += info.size_bytes
    return out if changed else None


cdef int again(
    bytearray out, const uint8_t* p, BatchInfo info, int codec, int level, int64_t max_bytes
) except -1:
    """Append one batch to out, in the other codec."""
    cdef object records
    cdef MemoryView view
    cdef Py_ssize_t begin = len(out)
    cdef uint8_t* into
    if is_compressed(&info):
        records = decompress_memory(
            info.attributes & COMPRESSION_MASK, p + BATCH_HEADER_SIZE,
            info.size_bytes - BATCH_HEADER_SIZE, max_bytes)
    else:
        records = (<const char*>p + BATCH_HEADER_SIZE)[:info.size_bytes - BATCH_HEADER_SIZE]
    view = view_of(records)
    if codec != COMPRESSION_NONE:
        records = compress_memory(codec, level, view.data, view.size)
        view = view_of(records)
    if view.size > LARGEST_BATCH - BATCH_HEADER_SIZE:
        raise CompressionError("a batch would be larger than 2 GiB")
    info.size_bytes = <int>(BATCH_HEADER_SIZE + view.size)
    info.attributes = <int16_t>((info.attributes & ~COMPRESSION_MASK) | codec)
    out += b"\0" * info.size_bytes
    into = <uint8_t*>PyByteArray_AS_STRING(out) + begin
    memcpy(into + BATCH_HEADER_SIZE, view.data, view.size)
    write_batch_header(into, &info)
    return 0


def recompress(batches, int codec, int level=-1):
    cdef MemoryView given = view_of(batches)
    return recompressed(given.data, given.size, codec, level, MAX_DECOMPRESSED_BYTES)
