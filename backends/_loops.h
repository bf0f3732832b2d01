/* Loops over a block of elements, for each dtype.
 *
 * Squares of float32 and of narrower floats are exact in float64, and their sums cannot overflow there. So one pass is right for
 * any magnitude, and the result is the same whether the compiler fuses products and sums or not.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* On x86 the loops are compiled three times, and the loader chooses for the processor; elsewhere the compiler's target decides. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#include <immintrin.h>
#define HAS_CLONES
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum { LANES = 32 };   /* sums side by side, so that no addition waits for the one before it */
enum { BLOCK = 2048 }; /* the most elements for these loops: float16 is converted in 8 KiB of the stack */

/* ---- conversions: by bits, which compilers vectorise, and right where the processor takes subnormal numbers for zero ------ */

static inline float as_float(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
static inline uint32_t as_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

static inline float from_float32(float x) { return x; }
static inline float to_float32(float x) { return x; }
static inline double from_float64(double x) { return x; }
static inline double to_float64(double x) { return x; }

static inline float from_bfloat16(uint16_t x) { return as_float((uint32_t)x << 16); }

static inline uint16_t to_bfloat16(float x)
{
    uint32_t bits = as_bits(x), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

static inline float from_float16(uint16_t x)
{
    uint32_t bits = x, sign = (bits & 0x8000) << 16, exponent = bits & 0x7c00, bias = 112u << 23;
    uint32_t normal = ((bits & 0x7fff) << 13) + (exponent == 0x7c00 ? 2 * bias : bias);
    uint32_t subnormal = as_bits((float)(int32_t)(bits & 0x3ff) * 0x1p-24f);
    return as_float(sign | (exponent ? normal : subnormal));
}

static inline uint16_t to_float16(float x)
{
    uint32_t bits = as_bits(x), magnitude = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
    uint32_t subnormal = as_bits(as_float(magnitude) + 0.5f) - as_bits(0.5f); /* rounded to a multiple of 2**-24 */
    uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result; /* from 65520 on */
    return (uint16_t)(sign | (magnitude > 0x7f800000 ? 0x7e00 : result));
}

/* ---- float32, bfloat16, float64 ------------------------------------------------------------------------------------------ */

#define NAME float32
#define STORED float
#define WIDE float
#define FLAG int32_t
#include "_loop.h"

#define NAME bfloat16
#define STORED uint16_t
#define WIDE float
#define FLAG int32_t
#include "_loop.h"

#define NAME float64
#define STORED double
#define WIDE double
#define FLAG int64_t
#include "_loop.h"

/* ---- float16: as float32, by way of a block on the stack ----------------------------------------------------------------- */

#ifdef HAS_CLONES
/* The processor's own conversions, which clips of float16 take half the time with. GCC 12 does not vectorise them. */
__attribute__((target("avx,f16c"))) static Py_ssize_t widen_eights(float *y, const char *x, Py_ssize_t size)
{
    Py_ssize_t i = 0;
    for (; i + 8 <= size; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 2 * i))));
    return i;
}

__attribute__((target("avx,f16c"))) static Py_ssize_t narrow_eights(char *y, const float *x, Py_ssize_t size)
{
    Py_ssize_t i = 0;
    for (; i + 8 <= size; i += 8)
        _mm_storeu_si128((__m128i *)(y + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#define FIRST(some_eights, y, x, size) (__builtin_cpu_supports("f16c") ? some_eights(y, x, size) : 0)
#else
#define FIRST(some_eights, y, x, size) 0
#endif

FOR_EACH_PROCESSOR static void widen(float *y, const char *x, Py_ssize_t size)
{
    for (Py_ssize_t i = FIRST(widen_eights, y, x, size); i < size; i++)
        y[i] = from_float16(load_bfloat16(x, i)); /* 16 bits of either */
}

FOR_EACH_PROCESSOR static void narrow(char *y, const float *x, Py_ssize_t size)
{
    for (Py_ssize_t i = FIRST(narrow_eights, y, x, size); i < size; i++)
        store_bfloat16(y, i, to_float16(x[i]));
}

static double squares_float16(const void *x, Py_ssize_t size)
{
    float wide[BLOCK];
    widen(wide, x, size);
    return squares_float32(wide, size);
}

static void multiply_float16(void *y, const void *x, Py_ssize_t size, double number)
{
    float wide[BLOCK];
    widen(wide, x, size);
    multiply_float32(wide, wide, size, number);
    narrow(y, wide, size);
}

static double rounded_to_float16(double bound) { return from_float16(to_float16((float)bound)); }

static void clamp_float16(void *y, const void *x, Py_ssize_t size, double least, double most)
{
    float wide[BLOCK];
    widen(wide, x, size);
    clamp_float32(wide, wide, size, rounded_to_float16(least), rounded_to_float16(most));
    narrow(y, wide, size);
}

static int fits_float16(const void *x, Py_ssize_t size, double least, double most)
{
    float wide[BLOCK];
    widen(wide, x, size);
    return fits_float32(wide, size, rounded_to_float16(least), rounded_to_float16(most));
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

typedef enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64, KINDS } Kind; /* as kernels.py numbers them */

static const struct {
    Py_ssize_t itemsize;
    double (*squares)(const void *, Py_ssize_t);
    void (*multiply)(void *, const void *, Py_ssize_t, double);
    void (*clamp)(void *, const void *, Py_ssize_t, double, double);
    int (*fits)(const void *, Py_ssize_t, double, double);
} LOOPS_OF[KINDS] = {
    {4, squares_float32, multiply_float32, clamp_float32, fits_float32},
    {2, squares_float16, multiply_float16, clamp_float16, fits_float16},
    {2, squares_bfloat16, multiply_bfloat16, clamp_bfloat16, fits_bfloat16},
    {8, squares_float64, multiply_float64, clamp_float64, fits_float64},
};
