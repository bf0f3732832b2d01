/* The loops of which compilers make less than they could, by hand: of gradients in the cache 1.4 to 10 times as fast, and the
 * same to the bit, but for the payload of a NaN.
 */
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
enum { FOUR = 4, EIGHT = 8 }; /* numbers to a register, of float64 and of float32 */

AVX2 static inline void add_squares(__m256d *sums, __m128 four)
{
    __m256d wide = _mm256_cvtps_pd(four);
    *sums = _mm256_fmadd_pd(wide, wide, *sums);
}

/* Each adds the squares of LANES numbers to as many sums. */
AVX2 static inline void add_float32(__m256d *sums, const float *x)
{
    for (int j = 0; j < LANES; j += FOUR)
        add_squares(sums++, _mm_loadu_ps(x + j));
}

AVX2 static inline void add_float16(__m256d *sums, const uint16_t *x)
{
    for (int j = 0; j < LANES; j += FOUR)
        add_squares(sums++, _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(x + j))));
}

AVX2 static inline void add_bfloat16(__m256d *sums, const uint16_t *x)
{
    __m128i zeros = _mm_setzero_si128();
    for (int j = 0; j < LANES; j += EIGHT) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(x + j));
        add_squares(sums++, _mm_castsi128_ps(_mm_unpacklo_epi16(zeros, eight)));
        add_squares(sums++, _mm_castsi128_ps(_mm_unpackhi_epi16(zeros, eight)));
    }
}

#define SQUARES_AVX2(NAME, TYPE)                                                                                               \
    AVX2 static double block_##NAME##_avx2(const TYPE *x, Py_ssize_t size)                                                     \
    {                                                                                                                          \
        /* each is named, because a loop over so few becomes a slow call to fill memory */                                     \
        __m256d none = _mm256_setzero_pd(), sums[LANES / FOUR] = {none, none, none, none, none, none, none, none};             \
        Py_ssize_t i = 0;                                                                                                      \
        for (; i + LANES <= size; i += LANES) {                                                                                \
            prefetch(x + i, LANES * sizeof *x);                                                                                \
            add_##NAME(sums, x + i);                                                                                           \
        }                                                                                                                      \
        return last_##NAME(x + i, size - i, (double *)sums);                                                                   \
    }                                                                                                                          \
    SQUARES(NAME, TYPE, _avx2)

SQUARES_AVX2(float32, float)
SQUARES_AVX2(float16, uint16_t)
SQUARES_AVX2(bfloat16, uint16_t)

AVX2 static void multiply_float16_avx2(void *to, const void *from, Py_ssize_t size, int is_large, double number)
{
    const uint16_t *x = from;
    uint16_t *y = to;
    __m256 factor = _mm256_set1_ps((float)number);
    int streams = is_streamed(y, x, (size_t)size * sizeof *x, is_large);
    Py_ssize_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        if (streams || prefetches)
            prefetch_always(x + i, LANES * sizeof *x);
        for (Py_ssize_t j = i; j < i + LANES; j += EIGHT) {
            __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + j)));
            __m128i eight = _mm256_cvtps_ph(_mm256_mul_ps(wide, factor), _MM_FROUND_TO_NEAREST_INT);
            if (streams)
                _mm_stream_si128((__m128i *)(y + j), eight);
            else
                _mm_storeu_si128((__m128i *)(y + j), eight);
        }
    }
    if (streams)
        end_stream();
    multiply_float16(y + i, x + i, size - i, 0, number);
}

static void choose_loops(void)
{
    prefetches = !__builtin_cpu_is("amd"); /* loops in place take 0.8 of the time without, on Zen 4; others not measured */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
        return;
    LOOPS_OF[FLOAT16].squares = squares_float16_avx2;
    LOOPS_OF[FLOAT16].multiply = multiply_float16_avx2;
    if (__builtin_cpu_supports("avx512f") && !__builtin_cpu_is("amd")) /* there the compiler's, of 512 bits, need fewer steps */
        return;
    LOOPS_OF[FLOAT32].squares = squares_float32_avx2;
    LOOPS_OF[BFLOAT16].squares = squares_bfloat16_avx2;
}
#else
static void choose_loops(void) {}
#endif
