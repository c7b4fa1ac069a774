# CRC-32C for the other modules of _fast, chosen for the CPU at import (crc32c_impl.h).

from libc.stdint cimport uint8_t, uint32_t

# CRC-32C (Castagnoli) of size bytes at data, as Kafka stores it (initial and final complement
# included).
cdef uint32_t crc32c(const uint8_t* data, size_t size) noexcept nogil
# Continues: crc is the value returned for the bytes before.
cdef uint32_t crc32c_update(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
