/* The loops over elements, for each dtype.
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
#define IS_X86_GCC
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum { LANES = 32 }; /* sums side by side, so that no addition waits for the one before it */

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

/* ---- the loops ----------------------------------------------------------------------------------------------------------- */

/* STORED is the type in memory, WIDE the type of the arithmetic, FLAG an integer as wide as that. memcpy reads and writes an
 * element at any address, aligned or not; compilers make one instruction of it. A clamp keeps the bits of elements between the
 * bounds, and of a NaN.
 */
#define LOOPS(NAME, STORED, WIDE, FLAG)                                                                                        \
    static inline STORED load_##NAME(const void *x, Py_ssize_t i)                                                              \
    {                                                                                                                          \
        STORED v;                                                                                                              \
        memcpy(&v, (const char *)x + i * (Py_ssize_t)sizeof v, sizeof v);                                                      \
        return v;                                                                                                              \
    }                                                                                                                          \
    static inline void store_##NAME(void *y, Py_ssize_t i, STORED v)                                                           \
    {                                                                                                                          \
        memcpy((char *)y + i * (Py_ssize_t)sizeof v, &v, sizeof v);                                                            \
    }                                                                                                                          \
    FOR_EACH_PROCESSOR static double squares_##NAME(const void *x, Py_ssize_t size)                                            \
    {                                                                                                                          \
        double lanes[LANES] = {0}, sum = 0;                                                                                    \
        Py_ssize_t i = 0;                                                                                                      \
        for (; i + LANES <= size; i += LANES)                                                                                  \
            for (int j = 0; j < LANES; j++) {                                                                                  \
                double v = from_##NAME(load_##NAME(x, i + j));                                                                 \
                lanes[j] += v * v;                                                                                             \
            }                                                                                                                  \
        for (; i < size; i++) {                                                                                                \
            double v = from_##NAME(load_##NAME(x, i));                                                                         \
            sum += v * v;                                                                                                      \
        }                                                                                                                      \
        for (int j = 0; j < LANES; j++)                                                                                        \
            sum += lanes[j];                                                                                                   \
        return sum;                                                                                                            \
    }                                                                                                                          \
    FOR_EACH_PROCESSOR static void multiply_##NAME(void *y, const void *x, Py_ssize_t size, double number)                     \
    {                                                                                                                          \
        WIDE factor = (WIDE)number;                                                                                            \
        for (Py_ssize_t i = 0; i < size; i++)                                                                                  \
            store_##NAME(y, i, to_##NAME(from_##NAME(load_##NAME(x, i)) * factor));                                            \
    }                                                                                                                          \
    FOR_EACH_PROCESSOR static void clamp_##NAME(void *y, const void *x, Py_ssize_t size, double least, double most)            \
    {                                                                                                                          \
        STORED lower = to_##NAME((WIDE)least), upper = to_##NAME((WIDE)most);                                                  \
        WIDE low = from_##NAME(lower), high = from_##NAME(upper);                                                              \
        for (Py_ssize_t i = 0; i < size; i++) {                                                                                \
            STORED v = load_##NAME(x, i);                                                                                      \
            v = high < from_##NAME(v) ? upper : v; /* in this order one instruction of x86 */                                  \
            store_##NAME(y, i, low > from_##NAME(v) ? lower : v);                                                              \
        }                                                                                                                      \
    }                                                                                                                          \
    FOR_EACH_PROCESSOR static int fits_##NAME(const void *x, Py_ssize_t size, double least, double most)                       \
    {                                                                                                                          \
        WIDE low = from_##NAME(to_##NAME((WIDE)least)), high = from_##NAME(to_##NAME((WIDE)most));                             \
        FLAG all_fit = 1;                                                                                                      \
        for (Py_ssize_t i = 0; i < size; i++) {                                                                                \
            WIDE v = from_##NAME(load_##NAME(x, i));                                                                           \
            all_fit &= (FLAG)((v >= low) & (v <= high));                                                                       \
        }                                                                                                                      \
        return all_fit != 0;                                                                                                   \
    }

LOOPS(float32, float, float, int32_t)
LOOPS(float16, uint16_t, float, int32_t)
LOOPS(bfloat16, uint16_t, float, int32_t)
LOOPS(float64, double, double, int64_t)

#ifdef IS_X86_GCC
/* float16 by the processor's own conversions, which compilers do not vectorise: clips take a third of the time. */
#define F16C __attribute__((target("avx2,fma,f16c")))

F16C static inline __m256 load_8(const void *x, Py_ssize_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const char *)x + 2 * i)));
}

F16C static inline void store_8(void *y, Py_ssize_t i, __m256 v)
{
    _mm_storeu_si128((__m128i *)((char *)y + 2 * i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

F16C static double squares_f16c(const void *x, Py_ssize_t size)
{
    __m256d sums[8] = {_mm256_setzero_pd()};
    Py_ssize_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < 4; j++) {
            __m256 v = load_8(x, i + 8 * j);
            __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
            sums[j] += low * low;
            sums[j + 4] += high * high;
        }
    double lanes[LANES], sum = squares_float16((const char *)x + 2 * i, size - i);
    memcpy(lanes, sums, sizeof lanes);
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

F16C static void multiply_f16c(void *y, const void *x, Py_ssize_t size, double factor)
{
    Py_ssize_t i = 0;
    for (; i + 8 <= size; i += 8)
        store_8(y, i, load_8(x, i) * _mm256_set1_ps((float)factor));
    multiply_float16((char *)y + 2 * i, (const char *)x + 2 * i, size - i, factor);
}

F16C static void clamp_f16c(void *y, const void *x, Py_ssize_t size, double least, double most)
{
    Py_ssize_t i = 0;
    for (; i + 8 <= size; i += 8) /* in this order a NaN stays a NaN */
        store_8(y, i, _mm256_max_ps(_mm256_set1_ps((float)least), _mm256_min_ps(_mm256_set1_ps((float)most), load_8(x, i))));
    clamp_float16((char *)y + 2 * i, (const char *)x + 2 * i, size - i, least, most);
}
#endif

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

typedef enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64, KINDS } Kind; /* as kernels.py numbers them */

typedef struct {
    Py_ssize_t itemsize;
    double (*squares)(const void *, Py_ssize_t);
    void (*multiply)(void *, const void *, Py_ssize_t, double);
    void (*clamp)(void *, const void *, Py_ssize_t, double, double);
    int (*fits)(const void *, Py_ssize_t, double, double);
} Loops;

static const Loops *loops_of(Kind kind)
{
    static const Loops each[KINDS] = {
        {4, squares_float32, multiply_float32, clamp_float32, fits_float32},
        {2, squares_float16, multiply_float16, clamp_float16, fits_float16},
        {2, squares_bfloat16, multiply_bfloat16, clamp_bfloat16, fits_bfloat16},
        {8, squares_float64, multiply_float64, clamp_float64, fits_float64},
    };
#ifdef IS_X86_GCC
    static const Loops f16c = {2, squares_f16c, multiply_f16c, clamp_f16c, fits_float16};
    if (kind == FLOAT16 && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
        return &f16c;
#endif
    return &each[kind];
}
