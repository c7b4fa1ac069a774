# Batches written anew in another compression.

from libc.stdint cimport int64_t, uint8_t

# The batches of data, each in the codec (0..4); None where all are in it already, and where one is
# unsound. A negative level is the codec's own default, but for zstd, where only -1 is.
# What a batch holds may be max_bytes.
cdef bytearray recompressed(
    const uint8_t* data, Py_ssize_t size, int codec, int level, int64_t max_bytes)
