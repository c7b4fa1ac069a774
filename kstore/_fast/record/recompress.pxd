# Recompresses batches.

from libc.stdint cimport int64_t, uint8_t

# The batches of data, each in the codec (0..4); None if all have it already, or one is invalid. A
# negative level is the codec's default, but for zstd only -1 is.
# A batch may expand to max_bytes.
cdef bytearray recompressed(
    const uint8_t* data, Py_ssize_t size, int codec, int level, int64_t max_bytes)
