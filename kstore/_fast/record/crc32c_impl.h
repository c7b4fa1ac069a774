/* CRC-32C in C: with the CPU's instructions if it has them, otherwise with slicing tables. The
 * choice is made once, when the module is imported, without compiler flags. The kernels work on raw
 * registers: kstore_crc32c_run adds the initial and final complement. */

#ifndef KSTORE_CRC32C_IMPL_H
#define KSTORE_CRC32C_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KSTORE_CRC32C_POLYNOMIAL 0x82F63B78u /* bit-reflected */

typedef uint32_t (*kstore_crc32c_fn)(uint32_t crc, const uint8_t *data, size_t size);

/* Widths of one of three lanes; wider ones hide the cost of joining the lanes. */
static const size_t kstore_crc32c_lanes[4] = {4096, 1024, 256, 64};
static uint32_t kstore_crc32c_shift1[4]; /* moves a lane's register past one lane, ... */
static uint32_t kstore_crc32c_shift2[4]; /* ... past two */
static uint32_t kstore_crc32c_table[8][256];

static uint32_t kstore_crc32c_times_x(uint32_t value) {
    return (value >> 1) ^ ((value & 1) ? KSTORE_CRC32C_POLYNOMIAL : 0);
}

/* x^n modulo the polynomial, bit-reflected. */
static uint32_t kstore_crc32c_power(size_t n) {
    uint32_t value = 0x80000000u;
    while (n--) value = kstore_crc32c_times_x(value);
    return value;
}

static void kstore_crc32c_make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = kstore_crc32c_times_x(value);
        kstore_crc32c_table[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int slice = 1; slice < 8; slice++) {
            uint32_t before = kstore_crc32c_table[slice - 1][byte];
            uint32_t low = kstore_crc32c_table[0][before & 0xFF];
            kstore_crc32c_table[slice][byte] = (before >> 8) ^ low;
        }
}

static uint32_t kstore_crc32c_portable(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
        crc = kstore_crc32c_table[7][low & 0xFF] ^ kstore_crc32c_table[6][(low >> 8) & 0xFF] ^
              kstore_crc32c_table[5][(low >> 16) & 0xFF] ^ kstore_crc32c_table[4][low >> 24] ^
              kstore_crc32c_table[3][p[4]] ^ kstore_crc32c_table[2][p[5]] ^
              kstore_crc32c_table[1][p[6]] ^ kstore_crc32c_table[0][p[7]];
    }
    while (size--) crc = (crc >> 8) ^ kstore_crc32c_table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

static inline uint64_t kstore_crc32c_word(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define KSTORE_CRC32C_HARDWARE "sse4.2+pclmul"
#define KSTORE_CRC32C_TARGET __attribute__((target("sse4.2,pclmul")))
#define KSTORE_CRC32C_STEP(crc, word) _mm_crc32_u64(crc, word)
#define KSTORE_CRC32C_STEP8(crc, byte) _mm_crc32_u8((uint32_t)(crc), byte)

static int kstore_crc32c_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

/* A carry-less product of two reflected 32-bit values, fed through the CRC instruction, is
 * multiplied by x^33 more: hence the 33 in kstore_crc32c_init. */
KSTORE_CRC32C_TARGET static inline uint32_t kstore_crc32c_join(
    uint64_t a, uint64_t b, uint64_t c, int width) {
    __m128i first = _mm_clmulepi64_si128(
        _mm_cvtsi64_si128((int64_t)a), _mm_cvtsi32_si128((int)kstore_crc32c_shift2[width]), 0);
    __m128i second = _mm_clmulepi64_si128(
        _mm_cvtsi64_si128((int64_t)b), _mm_cvtsi32_si128((int)kstore_crc32c_shift1[width]), 0);
    uint64_t product = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(first, second));
    return (uint32_t)(_mm_crc32_u64(0, product) ^ c);
}

#elif defined(__aarch64__) && defined(__GNUC__) && defined(__linux__)
#include <sys/auxv.h>
#define KSTORE_CRC32C_HARDWARE "armv8-crc"
#if defined(__clang__)
#define KSTORE_CRC32C_TARGET __attribute__((target("crc")))
#else
#define KSTORE_CRC32C_TARGET __attribute__((target("+crc")))
#endif
#if !defined(__ARM_FEATURE_CRC32)
/* Some compilers declare the intrinsics only when the whole unit is built for CRC. */
static inline uint32_t kstore_crc32c_arm8(uint32_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
static inline uint32_t kstore_crc32c_arm1(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}
#define KSTORE_CRC32C_STEP(crc, word) kstore_crc32c_arm8((uint32_t)(crc), word)
#define KSTORE_CRC32C_STEP8(crc, byte) kstore_crc32c_arm1((uint32_t)(crc), byte)
#else
#include <arm_acle.h>
#define KSTORE_CRC32C_STEP(crc, word) __crc32cd((uint32_t)(crc), word)
#define KSTORE_CRC32C_STEP8(crc, byte) __crc32cb((uint32_t)(crc), byte)
#endif

static int kstore_crc32c_has_hardware(void) {
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
}

/* Without a carry-less multiply (a separate extension): bit by bit; wide lanes hide the cost. */
static inline uint64_t kstore_crc32c_multiply(uint64_t value, uint32_t by) {
    uint64_t product = 0;
    for (; by; by &= by - 1) product ^= value << __builtin_ctz(by);
    return product;
}

KSTORE_CRC32C_TARGET static inline uint32_t kstore_crc32c_join(
    uint64_t a, uint64_t b, uint64_t c, int width) {
    uint64_t product = kstore_crc32c_multiply(a, kstore_crc32c_shift2[width]) ^
                       kstore_crc32c_multiply(b, kstore_crc32c_shift1[width]);
    return (uint32_t)(KSTORE_CRC32C_STEP(0, product) ^ c);
}
#endif

#ifdef KSTORE_CRC32C_HARDWARE
/* The instruction has a latency of three cycles and a throughput of one: three lanes fill it. */
KSTORE_CRC32C_TARGET static uint32_t kstore_crc32c_hardware(
    uint32_t crc, const uint8_t *p, size_t size) {
    uint64_t a = crc;
    for (int width = 0; width < 4 && size >= 3 * 64; width++) {
        const size_t lane = kstore_crc32c_lanes[width];
        while (size >= 3 * lane) {
            uint64_t b = 0, c = 0;
            const uint8_t *stop = p + lane;
            for (; p < stop; p += 8) {
                a = KSTORE_CRC32C_STEP(a, kstore_crc32c_word(p));
                b = KSTORE_CRC32C_STEP(b, kstore_crc32c_word(p + lane));
                c = KSTORE_CRC32C_STEP(c, kstore_crc32c_word(p + 2 * lane));
            }
            a = kstore_crc32c_join(a, b, c, width);
            p += 2 * lane;
            size -= 3 * lane;
        }
    }
    for (; size >= 8; size -= 8, p += 8) a = KSTORE_CRC32C_STEP(a, kstore_crc32c_word(p));
    for (; size; size--, p++) a = KSTORE_CRC32C_STEP8(a, *p);
    return (uint32_t)a;
}
#endif

static kstore_crc32c_fn kstore_crc32c_chosen = kstore_crc32c_portable;

/* Called once at import, before any other function here. Returns the name of the choice. */
static const char *kstore_crc32c_init(void) {
    kstore_crc32c_make_table();
#ifdef KSTORE_CRC32C_HARDWARE
    if (kstore_crc32c_has_hardware()) {
        for (int width = 0; width < 4; width++) {
            size_t bits = 8 * kstore_crc32c_lanes[width];
            kstore_crc32c_shift1[width] = kstore_crc32c_power(bits - 33);
            kstore_crc32c_shift2[width] = kstore_crc32c_power(2 * bits - 33);
        }
        kstore_crc32c_chosen = kstore_crc32c_hardware;
        return KSTORE_CRC32C_HARDWARE;
    }
#endif
    return "portable";
}

static inline uint32_t kstore_crc32c_run(uint32_t crc, const uint8_t *data, size_t size) {
    return ~kstore_crc32c_chosen(~crc, data, size);
}

static inline uint32_t kstore_crc32c_run_portable(uint32_t crc, const uint8_t *data, size_t size) {
    return ~kstore_crc32c_portable(~crc, data, size);
}

#endif
