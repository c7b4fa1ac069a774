# Kafka's compression types over raw memory, always with a limit of the result.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    COMPRESSION_NONE = 0
    COMPRESSION_GZIP = 1
    COMPRESSION_SNAPPY = 2
    COMPRESSION_LZ4 = 3
    COMPRESSION_ZSTD = 4
    MAX_DECOMPRESSED_BYTES = 268435456      # of one batch, by default

# The decompressed bytes, exactly sized. Raises CompressionError if the data is bad or expands to
# more than max_bytes (it never allocates more).
cdef bytearray decompress_memory(int codec, const uint8_t* data, Py_ssize_t size, int64_t max_bytes)
cdef object compress_memory(int codec, int level, const uint8_t* data, Py_ssize_t size)
