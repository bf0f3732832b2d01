/* Loops over the elements of gradients in the host's memory, at the speed of memory and rounded once.
 *
 * gradclip works without this module; kernels.py says what is done then. It knows nothing of tensors: a gradient is an object
 * with a buffer, or an address and a number of elements, for which the caller vouches.
 *
 * Squares of float32, and of what is narrower, are exact in float64, and their sums cannot overflow there: one pass is right at
 * any length and for any magnitude, and the result is the same whether the compiler fuses products and sums or not.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
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
enum { BLOCK = 1 << 12 };       /* elements to a sum, so that float64 is right to some ulp at any length too */
enum { HOLDS_GIL = 1 << 14 };   /* up to so many elements other threads wait no longer than for a call */

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

static inline void prefetch(const void *data, size_t bytes)
{
#ifdef __GNUC__
    for (size_t line = 0; line < bytes; line += 64)
        __builtin_prefetch((const char *)data + AHEAD + line);
#else
    (void)data, (void)bytes;
#endif
}

/* ---- the loops ----------------------------------------------------------------------------------------------------------- */

/* Neumaier's sum: what an addition rounds away is kept apart. */
static inline void add(double *sum, double *lost, double value)
{
    double total = *sum + value;
    *lost += fabs(*sum) >= fabs(value) ? (*sum - total) + value : (value - total) + *sum;
    *sum = total;
}

/* Whether to write past the cache, line by line. */
static inline int is_streamed(const void *y, const void *x, size_t bytes)
{
#ifdef __SSE2__
    return y != x && bytes >= STREAMED && (uintptr_t)y % 64 == 0;
#else
    return (void)y, (void)x, (void)bytes, 0;
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
    if (is_streamed(y, x, (size_t)size * sizeof(TYPE))) {                                                                      \
        for (; i + LANES <= size; i += LANES) {                                                                                \
            TYPE lines[LANES];                                                                                                 \
            prefetch(x + i, sizeof lines);                                                                                     \
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

/* The arithmetic is done in WIDE. */
#define LOOPS(NAME, TYPE, WIDE)                                                                                                \
    FOR_EACH_PROCESSOR static double block_##NAME(const TYPE *x, Py_ssize_t size)                                              \
    {                                                                                                                          \
        double lanes[LANES] = {0}, sum = 0;                                                                                    \
        Py_ssize_t i = 0;                                                                                                      \
        for (; i + LANES <= size; i += LANES) {                                                                                \
            prefetch(x + i, LANES * sizeof *x);                                                                                \
            for (int j = 0; j < LANES; j++) {                                                                                  \
                double value = from_##NAME(x[i + j]);                                                                          \
                lanes[j] += value * value;                                                                                     \
            }                                                                                                                  \
        }                                                                                                                      \
        for (; i < size; i++) {                                                                                                \
            double value = from_##NAME(x[i]);                                                                                  \
            sum += value * value;                                                                                              \
        }                                                                                                                      \
        for (int j = 0; j < LANES; j++)                                                                                        \
            sum += lanes[j];                                                                                                   \
        return sum;                                                                                                            \
    }                                                                                                                          \
    static double squares_##NAME(const void *data, Py_ssize_t size)                                                            \
    {                                                                                                                          \
        const TYPE *x = data;                                                                                                  \
        double sum = 0, lost = 0;                                                                                              \
        for (; size > BLOCK; x += BLOCK, size -= BLOCK)                                                                        \
            add(&sum, &lost, block_##NAME(x, BLOCK));                                                                          \
        add(&sum, &lost, block_##NAME(x, size));                                                                               \
        return sum < INFINITY ? sum + lost : sum;                                                                              \
    }                                                                                                                          \
    FOR_EACH_PROCESSOR static void multiply_##NAME(void *to, const void *from, Py_ssize_t size, double number)                 \
    {                                                                                                                          \
        const TYPE *x = from;                                                                                                  \
        TYPE *y = to;                                                                                                          \
        WIDE factor = (WIDE)number;                                                                                            \
        EACH(TYPE, to_##NAME(from_##NAME(v) * factor))                                                                         \
    }

/* A NaN stays one between two bounds. */
#define CLAMP(NAME, TYPE)                                                                                                      \
    FOR_EACH_PROCESSOR static void clamp_##NAME(void *to, const void *from, Py_ssize_t size, double least, double most)        \
    {                                                                                                                          \
        const TYPE *x = from;                                                                                                  \
        TYPE *y = to, lower = (TYPE)least, upper = (TYPE)most;                                                                 \
        EACH(TYPE, v > upper ? upper : v < lower ? lower : v)                                                                  \
    }

/* The bits of halves, in the order of the numbers: those of negative ones are turned round. */
static inline int16_t ordered(int16_t bits) { return (int16_t)(bits ^ ((bits >> 15) & 0x7fff)); }

static inline int16_t between_bits(int16_t bits, int16_t lower, int16_t upper, int16_t low, int16_t high, int16_t infinite)
{
    int16_t x = ordered(bits), result = x > high ? upper : bits;
    result = x < low ? lower : result;
    return (bits & 0x7fff) > infinite ? bits : result;
}

/* Without a conversion. To numbers both zeros are one: none is below or above the other. */
#define CLAMP_BITS(NAME, INFINITE)                                                                                             \
    FOR_EACH_PROCESSOR static void clamp_##NAME(void *to, const void *from, Py_ssize_t size, double least, double most)        \
    {                                                                                                                          \
        const int16_t *x = from;                                                                                               \
        int16_t *y = to, lower = (int16_t)to_##NAME((float)least), upper = (int16_t)to_##NAME((float)most);                    \
        int16_t low = ordered(lower), high = ordered(upper);                                                                   \
        low = low == 0 ? -1 : low;                                                                                             \
        high = high == -1 ? 0 : high;                                                                                          \
        EACH(int16_t, between_bits(v, lower, upper, low, high, INFINITE))                                                      \
    }

LOOPS(float32, float, float)
LOOPS(float16, uint16_t, float)
LOOPS(bfloat16, uint16_t, float)
LOOPS(float64, double, double)
CLAMP(float32, float)
CLAMP_BITS(float16, 0x7c00)
CLAMP_BITS(bfloat16, 0x7f80)
CLAMP(float64, double)

static const struct {
    Py_ssize_t itemsize;
    double (*squares)(const void *, Py_ssize_t);
    void (*multiply)(void *, const void *, Py_ssize_t, double);
    void (*clamp)(void *, const void *, Py_ssize_t, double, double);
} LOOPS_OF[KINDS] = {
    {4, squares_float32, multiply_float32, clamp_float32},
    {2, squares_float16, multiply_float16, clamp_float16},
    {2, squares_bfloat16, multiply_bfloat16, clamp_bfloat16},
    {8, squares_float64, multiply_float64, clamp_float64},
};

/* ---- what Python hands over ---------------------------------------------------------------------------------------------- */

typedef struct {
    void *data;
    Py_ssize_t size;
    Py_buffer buffer; /* held where there is one, so that the memory stays */
} Piece;

typedef struct {
    Piece *pieces;
    Py_ssize_t count, elements;
} Pieces;

static void release(Pieces *some)
{
    for (Py_ssize_t i = 0; i < some->count; i++)
        if (some->pieces[i].buffer.obj)
            PyBuffer_Release(&some->pieces[i].buffer);
    PyMem_Free(some->pieces);
    some->pieces = NULL;
}

/* An address, or an object whose buffer is one piece of memory without gaps. */
static int open_piece(Piece *piece, PyObject *item, Py_ssize_t size, Py_ssize_t itemsize, int writable)
{
    memset(piece, 0, sizeof *piece);
    piece->size = size;
    if (!item || size < 0 || size > PY_SSIZE_T_MAX / itemsize) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "A piece cannot have %zd elements.", size);
        return -1;
    }
    if (PyLong_Check(item)) {
        piece->data = PyLong_AsVoidPtr(item);
        if (!piece->data && size && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "A piece with elements has an address.");
        return PyErr_Occurred() ? -1 : 0;
    }
    if (PyObject_GetBuffer(item, &piece->buffer, PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        if (PyErr_ExceptionMatches(PyExc_ValueError)) /* what NumPy says of an array with gaps, or one that is read-only */
            PyErr_SetString(PyExc_BufferError, "A piece is memory without gaps, and a target can be written.");
        return -1;
    }
    piece->data = piece->buffer.buf;
    if (piece->buffer.len != size * itemsize)
        PyErr_Format(PyExc_ValueError, "A buffer has %zd bytes, and not %zd elements.", piece->buffer.len, size);
    else if (size && (uintptr_t)piece->data % (uintptr_t)itemsize)
        PyErr_SetString(PyExc_BufferError, "A buffer begins at a multiple of its elements' size.");
    else
        return 0;
    PyBuffer_Release(&piece->buffer);
    return -1;
}

static int open_pieces(Pieces *some, PyObject *items, PyObject *sizes, Kind kind, int writable)
{
    Py_ssize_t count = PyList_Size(items);
    some->pieces = NULL;
    some->count = some->elements = 0;
    if (count < 0 || PyList_Size(sizes) != count || kind < 0 || kind >= KINDS) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "There must be a size for each piece, and a kind that is known.");
        return -1;
    }
    some->pieces = PyMem_Malloc((count + 1) * sizeof(Piece));
    if (!some->pieces) {
        PyErr_NoMemory();
        return -1;
    }
    for (; some->count < count; some->count++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyList_GetItem(sizes, some->count));
        PyObject *item = PyList_GetItem(items, some->count);
        if ((size == -1 && PyErr_Occurred()) ||
            open_piece(&some->pieces[some->count], item, size, LOOPS_OF[kind].itemsize, writable) < 0) {
            release(some);
            return -1;
        }
        some->elements += size;
    }
    return 0;
}

/* What a loop spends its time in, without the interpreter's lock where that is long. */
#define WITHOUT_GIL(ELEMENTS, LOOP)                                                                                            \
    do {                                                                                                                       \
        PyThreadState *state = (ELEMENTS) > HOLDS_GIL ? PyEval_SaveThread() : NULL;                                            \
        LOOP                                                                                                                   \
        if (state)                                                                                                             \
            PyEval_RestoreThread(state);                                                                                       \
    } while (0)

static PyObject *py_squares(PyObject *module, PyObject *arguments)
{
    PyObject *items, *sizes, *result;
    Pieces x;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!O!i", &PyList_Type, &items, &PyList_Type, &sizes, &kind) ||
        open_pieces(&x, items, sizes, kind, 0) < 0)
        return NULL;
    double *sums = PyMem_Malloc((x.count + 1) * sizeof(double));
    if (!sums) {
        release(&x);
        return PyErr_NoMemory();
    }
    WITHOUT_GIL(x.elements, for (Py_ssize_t i = 0; i < x.count; i++)
                                sums[i] = LOOPS_OF[kind].squares(x.pieces[i].data, x.pieces[i].size););
    result = PyList_New(x.count);
    for (Py_ssize_t i = 0; result && i < x.count; i++) {
        PyObject *sum = PyFloat_FromDouble(sums[i]);
        if (!sum || PyList_SetItem(result, i, sum) < 0)
            Py_CLEAR(result);
    }
    PyMem_Free(sums);
    release(&x);
    return result;
}

/* Whether the elements of two buffers lie in the same order; of an address the caller knows. */
static int are_alike(const Py_buffer *y, const Py_buffer *x)
{
    return !y->obj || !x->obj || (PyBuffer_IsContiguous(y, 'C') && PyBuffer_IsContiguous(x, 'C')) ||
           (PyBuffer_IsContiguous(y, 'F') && PyBuffer_IsContiguous(x, 'F'));
}

/* Two lists of pieces, of which the first is written. */
static int open_both(Pieces *y, Pieces *x, PyObject *targets, PyObject *sources, PyObject *sizes, int kind)
{
    if (open_pieces(y, targets, sizes, kind, 1) < 0)
        return -1;
    if (open_pieces(x, sources, sizes, kind, 0) < 0) {
        release(y);
        return -1;
    }
    for (Py_ssize_t i = 0; i < x->count; i++)
        if (!are_alike(&y->pieces[i].buffer, &x->pieces[i].buffer)) {
            PyErr_SetString(PyExc_ValueError, "The elements of a target and of its source lie in another order.");
            release(y);
            release(x);
            return -1;
        }
    return 0;
}

static PyObject *py_multiply(PyObject *module, PyObject *arguments)
{
    PyObject *targets, *sources, *sizes, *factors;
    Pieces y, x;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!O!O!iO", &PyList_Type, &targets, &PyList_Type, &sources, &PyList_Type, &sizes, &kind,
                          &factors) ||
        open_both(&y, &x, targets, sources, sizes, kind) < 0)
        return NULL;
    double *each = PyMem_Malloc((x.count + 1) * sizeof(double));
    if (!each)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; each && i < x.count && !PyErr_Occurred(); i++) {
        PyObject *factor = PyList_Check(factors) ? PyList_GetItem(factors, i) : factors;
        each[i] = factor ? PyFloat_AsDouble(factor) : 0;
        each[i] = isnan(each[i]) ? NAN : each[i]; /* the one that to_bfloat16 keeps */
    }
    if (!PyErr_Occurred())
        WITHOUT_GIL(x.elements, for (Py_ssize_t i = 0; i < x.count; i++)
                                    LOOPS_OF[kind].multiply(y.pieces[i].data, x.pieces[i].data, x.pieces[i].size, each[i]););
    PyMem_Free(each);
    release(&y);
    release(&x);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *py_clamp(PyObject *module, PyObject *arguments)
{
    PyObject *targets, *sources, *sizes;
    Pieces y, x;
    int kind;
    double lower, upper;
    if (!PyArg_ParseTuple(arguments, "O!O!O!idd", &PyList_Type, &targets, &PyList_Type, &sources, &PyList_Type, &sizes, &kind,
                          &lower, &upper) ||
        open_both(&y, &x, targets, sources, sizes, kind) < 0)
        return NULL;
    WITHOUT_GIL(x.elements, for (Py_ssize_t i = 0; i < x.count; i++)
                                LOOPS_OF[kind].clamp(y.pieces[i].data, x.pieces[i].data, x.pieces[i].size, lower, upper););
    release(&y);
    release(&x);
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"squares", py_squares, METH_VARARGS, "squares(pieces, sizes, kind): the sum of the squares of each piece, in float64."},
    {"multiply", py_multiply, METH_VARARGS, "multiply(targets, sources, sizes, kind, factor): source * factor, or its own."},
    {"clamp", py_clamp, METH_VARARGS, "clamp(targets, sources, sizes, kind, lower, upper): source between lower <= upper."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&definition);
}
