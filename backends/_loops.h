/* Loops over the elements of gradients in the host's memory, at the speed of memory and rounded once.
 *
 * Squares of float32, and of what is narrower, are exact in float64, and their sums cannot overflow there: one pass is right at
 * any length and for any magnitude, and the result is the same whether the compiler fuses products and sums or not.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* On x86 the loops are compiled three times, and the loader chooses what the processor has; elsewhere the compiler's target. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum { LANES = 32 };            /* sums side by side, so that no addition waits for the one before it */
enum { AHEAD = 4096 };          /* bytes: what is asked for so early has come when it is read */
enum { STREAMED = 1 << 21 };    /* bytes from which on results go past the cache: to memory that is not read first */
enum { STREAM = 1 << 14 };      /* bytes that each of them has then at the least, for at its end that memory is waited for */
enum { BLOCK = 1 << 12 };       /* elements to a sum, so that float64 is right to some ulp at any length too */
enum { LOOK = 1 << 9 };         /* elements to look at before what is found is asked for */

typedef enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64, KINDS } Kind;

/* ---- conversions: by bits, in a form that compilers vectorise, and right where subnormal numbers count as zero ----------- */

static inline float as_float(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
static inline uint32_t as_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

static inline float from_float32(float x) { return x; }
static inline float to_float32(float x) { return x; }
static inline double from_float64(double x) { return x; }
static inline double to_float64(double x) { return x; }

static inline float from_bfloat16(uint16_t x) { return as_float((uint32_t)x << 16); }

static inline uint16_t to_bfloat16(float x) /* a NaN stays one if its lower half is 0, as in all that are made here */
{
    uint32_t bits = as_bits(x);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
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

static int prefetches = 1; /* not where the processor's own prefetching does as well, and these instructions only take time */

/* Also there beside results that go past the cache, which hinder the processor's own. */
static inline void prefetch_always(const void *data, size_t bytes)
{
#ifdef __GNUC__
    for (size_t line = 0; line < bytes; line += 64)
        __builtin_prefetch((const char *)data + AHEAD + line);
#else
    (void)data, (void)bytes;
#endif
}

static inline void prefetch(const void *data, size_t bytes)
{
    if (prefetches)
        prefetch_always(data, bytes);
}

/* ---- the loops ----------------------------------------------------------------------------------------------------------- */

/* Neumaier's sum: what an addition rounds away is kept apart. */
static inline void add(double *sum, double *lost, double value)
{
    double total = *sum + value;
    *lost += fabs(*sum) >= fabs(value) ? (*sum - total) + value : (value - total) + *sum;
    *sum = total;
}

/* Whether to write past the cache, line by line, a piece of what is large. */
static inline int is_streamed(const void *y, const void *x, size_t bytes, int is_large)
{
#ifdef __SSE2__
    return y != x && is_large && bytes >= STREAM && (uintptr_t)y % 64 == 0;
#else
    return (void)y, (void)x, (void)bytes, (void)is_large, 0;
#endif
}

static inline void stream(void *to, const void *lines, size_t bytes)
{
#ifdef __SSE2__
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)((char *)to + i), _mm_loadu_si128((const __m128i *)((const char *)lines + i)));
#else
    memcpy(to, lines, bytes);
#endif
}

static inline void end_stream(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* y[i] = RESULT for all of them, which is made of x[i], there called v */
#define EACH(TYPE, RESULT)                                                                                                     \
    Py_ssize_t i = 0;                                                                                                          \
    if (is_streamed(y, x, (size_t)size * sizeof(TYPE), is_large)) {                                                            \
        for (; i + LANES <= size; i += LANES) {                                                                                \
            TYPE lines[LANES];                                                                                                 \
            prefetch_always(x + i, sizeof lines);                                                                              \
            for (int j = 0; j < LANES; j++) {                                                                                  \
                TYPE v = x[i + j];                                                                                             \
                lines[j] = RESULT;                                                                                             \
            }                                                                                                                  \
            stream(y + i, lines, sizeof lines);                                                                                \
        }                                                                                                                      \
        end_stream();                                                                                                          \
    }                                                                                                                          \
    while (i + LANES <= size) {                                                                                                \
        prefetch(x + i, LANES * sizeof(TYPE));                                                                                 \
        for (Py_ssize_t end = i + LANES; i < end; i++) {                                                                       \
            TYPE v = x[i];                                                                                                     \
            y[i] = RESULT;                                                                                                     \
        }                                                                                                                      \
    }                                                                                                                          \
    for (; i < size; i++) {                                                                                                    \
        TYPE v = x[i];                                                                                                         \
        y[i] = RESULT;                                                                                                         \
    }

/* What are less than LANES numbers, and the sums of all others. */
#define LAST(NAME, TYPE)                                                                                                       \
    static double last_##NAME(const TYPE *x, Py_ssize_t size, double *lanes)                                                   \
    {                                                                                                                          \
        double sum = 0;                                                                                                        \
        for (Py_ssize_t i = 0; i < size; i++) {                                                                                \
            double value = from_##NAME(x[i]);                                                                                  \
            sum += value * value;                                                                                              \
        }                                                                                                                      \
        for (int half = LANES / 2; half; half /= 2)                                                                            \
            for (int j = 0; j < half; j++)                                                                                     \
                lanes[j] += lanes[j + half];                                                                                   \
        return sum + lanes[0];                                                                                                 \
    }

/* WAY is that of the processor: nothing, or _avx2. */
#define SQUARES(NAME, TYPE, WAY)                                                                                               \
    static double squares_##NAME##WAY(const void *data, Py_ssize_t size)                                                       \
    {                                                                                                                          \
        const TYPE *x = data;                                                                                                  \
        double sum = 0, lost = 0;                                                                                              \
        for (; size > BLOCK; x += BLOCK, size -= BLOCK)                                                                        \
            add(&sum, &lost, block_##NAME##WAY(x, BLOCK));                                                                     \
        add(&sum, &lost, block_##NAME##WAY(x, size));                                                                          \
        return sum < INFINITY ? sum + lost : sum;                                                                              \
    }

/* The arithmetic is done in WIDE. */
#define LOOPS(NAME, TYPE, WIDE)                                                                                                \
    LAST(NAME, TYPE)                                                                                                           \
    FOR_EACH_PROCESSOR static double block_##NAME(const TYPE *x, Py_ssize_t size)                                              \
    {                                                                                                                          \
        double lanes[LANES] = {0};                                                                                             \
        Py_ssize_t i = 0;                                                                                                      \
        for (; i + LANES <= size; i += LANES) {                                                                                \
            prefetch(x + i, LANES * sizeof *x);                                                                                \
            for (int j = 0; j < LANES; j++) {                                                                                  \
                double value = from_##NAME(x[i + j]);                                                                          \
                lanes[j] += value * value;                                                                                     \
            }                                                                                                                  \
        }                                                                                                                      \
        return last_##NAME(x + i, size - i, lanes);                                                                            \
    }                                                                                                                          \
    SQUARES(NAME, TYPE, )                                                                                                      \
    FOR_EACH_PROCESSOR static void multiply_##NAME(void *to, const void *from, Py_ssize_t size, int is_large, double number)   \
    {                                                                                                                          \
        const TYPE *x = from;                                                                                                  \
        TYPE *y = to;                                                                                                          \
        WIDE factor = (WIDE)number;                                                                                            \
        EACH(TYPE, to_##NAME(from_##NAME(v) * factor))                                                                         \
    }

/* A NaN stays one between two bounds. */
#define CLAMP(NAME, TYPE)                                                                                                      \
    static inline TYPE between_##NAME(TYPE v, TYPE lower, TYPE upper)                                                          \
    {                                                                                                                          \
        v = upper < v ? upper : v; /* in this order one instruction of x86 */                                                  \
        return lower > v ? lower : v;                                                                                          \
    }                                                                                                                          \
    FOR_EACH_PROCESSOR static void clamp_##NAME(void *to, const void *from, Py_ssize_t size,                                   \
                                                int is_large, double least, double most)                                       \
    {                                                                                                                          \
        const TYPE *x = from;                                                                                                  \
        TYPE *y = to, lower = (TYPE)least, upper = (TYPE)most;                                                                 \
        EACH(TYPE, between_##NAME(v, lower, upper))                                                                            \
    }

/* The bits of halves, in the order of the numbers: those of negative ones are turned round. */
static inline int16_t ordered(int16_t bits) { return (int16_t)(bits ^ ((bits >> 15) & 0x7fff)); }

static inline int16_t between_bits(int16_t bits, int16_t lower, int16_t upper, int16_t low, int16_t high, int16_t infinite)
{
    int16_t x = ordered(bits), result = x > high ? upper : bits;
    result = x < low ? lower : result;
    return (bits & 0x7fff) > infinite ? bits : result;
}

/* To numbers both zeros are one: none is below or above the other. */
static inline int16_t lowest(int16_t lower) { return ordered(lower) == 0 ? -1 : ordered(lower); }
static inline int16_t highest(int16_t upper) { return ordered(upper) == -1 ? 0 : ordered(upper); }

/* Without a conversion. */
#define CLAMP_BITS(NAME, INFINITE)                                                                                             \
    FOR_EACH_PROCESSOR static void clamp_##NAME(void *to, const void *from, Py_ssize_t size,                                   \
                                                int is_large, double least, double most)                                       \
    {                                                                                                                          \
        const int16_t *x = from;                                                                                               \
        int16_t *y = to, lower = (int16_t)to_##NAME((float)least), upper = (int16_t)to_##NAME((float)most);                    \
        int16_t low = lowest(lower), high = highest(upper);                                                                    \
        EACH(int16_t, between_bits(v, lower, upper, low, high, INFINITE))                                                      \
    }

/* Whether a block of numbers, called v, are all IN; the first one with another ends the search. FLAG is an integer as wide. */
#define FITS(NAME, TYPE, FLAG, LOW, HIGH, IN)                                                                                  \
    FOR_EACH_PROCESSOR static int block_fits_##NAME(const TYPE *x, Py_ssize_t size, TYPE low, TYPE high)                       \
    {                                                                                                                          \
        FLAG are_in = 1;                                                                                                       \
        for (Py_ssize_t i = 0; i < size; i++) {                                                                                \
            TYPE v = x[i];                                                                                                     \
            are_in &= (FLAG)(IN);                                                                                              \
        }                                                                                                                      \
        return are_in;                                                                                                         \
    }                                                                                                                          \
    static int fits_##NAME(const void *data, Py_ssize_t size, double least, double most)                                       \
    {                                                                                                                          \
        const TYPE *x = data;                                                                                                  \
        TYPE low = LOW, high = HIGH;                                                                                           \
        for (; size > LOOK; x += LOOK, size -= LOOK) {                                                                         \
            prefetch(x, LOOK * sizeof *x);                                                                                     \
            if (!block_fits_##NAME(x, LOOK, low, high))                                                                        \
                return 0;                                                                                                      \
        }                                                                                                                      \
        return block_fits_##NAME(x, size, low, high);                                                                          \
    }

LOOPS(float32, float, float)
LOOPS(float16, uint16_t, float)
LOOPS(bfloat16, uint16_t, float)
LOOPS(float64, double, double)
CLAMP(float32, float)
CLAMP_BITS(float16, 0x7c00)
CLAMP_BITS(bfloat16, 0x7f80)
CLAMP(float64, double)
FITS(float32, float, int32_t, (float)least, (float)most, (v >= low) & (v <= high))
FITS(float16, int16_t, int16_t, lowest((int16_t)to_float16((float)least)), highest((int16_t)to_float16((float)most)),
     (ordered(v) >= low) & (ordered(v) <= high))
FITS(bfloat16, int16_t, int16_t, lowest((int16_t)to_bfloat16((float)least)), highest((int16_t)to_bfloat16((float)most)),
     (ordered(v) >= low) & (ordered(v) <= high))
FITS(float64, double, int64_t, least, most, (v >= low) & (v <= high))

static void copy_bytes(void *to, const void *from, size_t bytes, int is_large)
{
    char *y = to;
    const char *x = from;
    if (is_streamed(y, x, bytes, is_large)) {
        for (; bytes >= 128; bytes -= 128, x += 128, y += 128) {
            prefetch_always(x, 128);
            stream(y, x, 128);
        }
        end_stream();
    }
    memcpy(y, x, bytes);
}

static struct {
    Py_ssize_t itemsize;
    double (*squares)(const void *, Py_ssize_t);
    void (*multiply)(void *, const void *, Py_ssize_t, int, double);
    void (*clamp)(void *, const void *, Py_ssize_t, int, double, double);
    int (*fits)(const void *, Py_ssize_t, double, double);
} LOOPS_OF[KINDS] = {
    {4, squares_float32, multiply_float32, clamp_float32, fits_float32},
    {2, squares_float16, multiply_float16, clamp_float16, fits_float16},
    {2, squares_bfloat16, multiply_bfloat16, clamp_bfloat16, fits_bfloat16},
    {8, squares_float64, multiply_float64, clamp_float64, fits_float64},
};
