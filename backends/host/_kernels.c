/* Norms, products and bounds of gradients in the host's memory, at the speed of memory. gradclip works without this module too;
 * kernels.py describes what it offers.
 *
 * A call opens the pieces, divides them into parts, and releases the interpreter's lock. Large work is shared with threads that
 * are started for the call and have ended before it returns. So an interrupt is seen before or after the work and never during
 * it, a fork finds no threads to lose, and whatever the caller holds outlives the work.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#ifndef _WIN32
#include <pthread.h>
#endif

#include "_loops.h"

enum { BLOCK = 1 << 12 };     /* elements in one sum: short sums are right to a few ulp, in float64 too */
enum { PART = 1 << 18 };      /* elements that a thread takes at a time, if the caller does not say */
enum { HOLDS_GIL = 1 << 14 }; /* up to this many elements, handing the lock over takes longer than the work */
enum { MOST_THREADS = 256 };

/* A piece of memory: an object with a buffer, or an address and a number of elements, for which the caller vouches. */
typedef struct {
    char *data;
    Py_ssize_t size;
    double found;     /* the result of a loop that only reads */
    Py_buffer buffer; /* if there is one, held until the call ends */
} Piece;

typedef struct {
    Piece *pieces;
    Py_ssize_t count, elements;
} Pieces;

typedef struct {
    Py_ssize_t piece, start, size;
    double found, lost; /* the result, and what a sum lost by rounding */
} Part;

typedef struct Work Work;

struct Work {
    void (*loop)(const Work *, Part *, char *y, const char *x, Py_ssize_t size); /* over a block of a part */
    const Loops *loops;
    int kind;
    PyObject *targets, *sources, *sizes, *factor_or_factors, *threads; /* the arguments; NULL for those that a loop lacks */
    Py_ssize_t large, part;
    unsigned long long parallel; /* the address of OpenMP's function, or 0 */
    double least, most;
    Pieces y, x; /* the pieces to write, maybe none, and the pieces to read */
    double *factors;
    Part *parts;
    Py_ssize_t count, next;
};

/* ---- pieces -------------------------------------------------------------------------------------------------------------- */

static int refuse(const char *why)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, why);
    return -1;
}

static int open_buffer(Piece *piece, PyObject *item, Py_ssize_t itemsize, int writable)
{
    if (PyObject_GetBuffer(item, &piece->buffer, PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        piece->buffer.obj = NULL;
        if (PyErr_ExceptionMatches(PyExc_ValueError)) /* NumPy's, for an array with gaps and for one that is read-only */
            PyErr_SetString(PyExc_BufferError, "A piece is memory without gaps, and a target can be written.");
        return -1;
    }
    piece->data = piece->buffer.buf;
    if (piece->size < 0)
        piece->size = piece->buffer.len / itemsize;
    if ((itemsize == 1 || piece->buffer.itemsize == itemsize) && piece->buffer.len == piece->size * itemsize)
        return 0;
    PyBuffer_Release(&piece->buffer);
    return refuse("A buffer has not as many bytes as its elements.");
}

/* ``size`` is None for all elements of a buffer. */
static int open_piece(Piece *piece, PyObject *item, PyObject *size, Py_ssize_t itemsize, int writable)
{
    *piece = (Piece){.size = size == Py_None ? -1 : PyLong_AsSsize_t(size)};
    if (PyErr_Occurred() || (size != Py_None && (piece->size < 0 || piece->size > PY_SSIZE_T_MAX / itemsize)))
        return refuse("A piece cannot have so many elements.");
    if (!PyLong_Check(item))
        return open_buffer(piece, item, itemsize, writable);
    piece->data = PyLong_AsVoidPtr(item);
    if (PyErr_Occurred() || piece->size < 0 || (!piece->data && piece->size))
        return refuse("For an address the number of elements must be known.");
    return 0;
}

static int open_pieces(Pieces *some, PyObject *items, PyObject *sizes, Py_ssize_t itemsize, int writable)
{
    Py_ssize_t count = PyList_Size(items);
    if (sizes != Py_None && (!PyList_Check(sizes) || PyList_Size(sizes) != count))
        return refuse("The sizes are None, or a list with one for each piece.");
    some->pieces = PyMem_Malloc((size_t)(count + 1) * sizeof(Piece));
    if (!some->pieces)
        return PyErr_NoMemory(), -1;
    for (; some->count < count; some->count++) {
        Piece *piece = &some->pieces[some->count];
        PyObject *size = sizes == Py_None ? sizes : PyList_GetItem(sizes, some->count);
        if (open_piece(piece, PyList_GetItem(items, some->count), size, itemsize, writable) < 0)
            return -1;
        some->elements += piece->size;
    }
    return 0;
}

static void close_pieces(Pieces *some)
{
    for (Py_ssize_t i = 0; i < some->count; i++)
        if (some->pieces[i].buffer.obj)
            PyBuffer_Release(&some->pieces[i].buffer);
    PyMem_Free(some->pieces);
}

/* Whether two pieces are of one size, with the elements in the same order; for an address the caller vouches. */
static int are_alike(const Piece *y, const Piece *x)
{
    const Py_buffer *to = &y->buffer, *from = &x->buffer;
    return y->size == x->size && (!to->obj || !from->obj || (PyBuffer_IsContiguous(to, 'C') && PyBuffer_IsContiguous(from, 'C')) ||
                                  (PyBuffer_IsContiguous(to, 'F') && PyBuffer_IsContiguous(from, 'F')));
}

typedef struct {
    const char *start, *end;
} Span;

static int by_address(const void *one, const void *other)
{
    const Span *x = one, *y = other;
    return (x->start > y->start) - (x->start < y->start);
}

/* Whether two pieces share memory. Also true if there is no memory left to find out. */
static int do_overlap(const Pieces *some, Py_ssize_t itemsize)
{
    Span few[64], *spans = few;
    size_t count = 0;
    int is_sorted = 1, found = 0;
    if (some->count > 64 && !(spans = PyMem_Malloc((size_t)some->count * sizeof *spans)))
        return 1;
    for (Py_ssize_t i = 0; i < some->count; i++)
        if (some->pieces[i].size) {
            const char *start = some->pieces[i].data;
            spans[count++] = (Span){start, start + some->pieces[i].size * itemsize};
            is_sorted &= count < 2 || spans[count - 2].start <= start;
        }
    if (!is_sorted)
        qsort(spans, count, sizeof *spans, by_address);
    for (size_t i = 1; i < count; i++)
        found |= spans[i - 1].end > spans[i].start;
    if (spans != few)
        PyMem_Free(spans);
    return found;
}

/* ---- the loops over a block of a part ------------------------------------------------------------------------------------ */

static void square(const Work *work, Part *part, char *y, const char *x, Py_ssize_t size)
{
    double value = work->loops->squares(x, size), sum = part->found, total = sum + value;
    part->lost += sum >= value ? (sum - total) + value : (value - total) + sum; /* Neumaier's sum */
    part->found = total;
}

static void multiply(const Work *work, Part *part, char *y, const char *x, Py_ssize_t size)
{
    work->loops->multiply(y, x, size, work->factors[part->piece]);
}

/* In place, a block that fits is read and not written back. In half precision the test would take longer than the write. */
static void clamp(const Work *work, Part *part, char *y, const char *x, Py_ssize_t size)
{
    if (y != x || work->loops->itemsize == 2 || !work->loops->fits(x, size, work->least, work->most))
        work->loops->clamp(y, x, size, work->least, work->most);
}

static void look(const Work *work, Part *part, char *y, const char *x, Py_ssize_t size) /* finds 1 where something does not fit */
{
    if (!part->found)
        part->found = !work->loops->fits(x, size, work->least, work->most);
}

static void do_part(const Work *work, Part *part)
{
    Py_ssize_t start = part->start * work->loops->itemsize, size;
    const char *x = work->x.pieces[part->piece].data + start;
    char *y = (work->targets ? &work->y : &work->x)->pieces[part->piece].data + start;
    for (Py_ssize_t rest = part->size; rest > 0; rest -= size) {
        size = rest < BLOCK ? rest : BLOCK;
        work->loop(work, part, y, x, size);
        x += size * work->loops->itemsize;
        y += size * work->loops->itemsize;
    }
}

/* ---- work, and the threads that share it --------------------------------------------------------------------------------- */

static int read_factors(Work *work)
{
    PyObject *given = work->factor_or_factors;
    if (!given)
        return 0;
    work->factors = PyMem_Malloc((size_t)(work->x.count + 1) * sizeof(double));
    if (!work->factors)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < work->x.count && !PyErr_Occurred(); i++) {
        PyObject *factor = PyList_Check(given) ? PyList_GetItem(given, i) : given;
        work->factors[i] = factor ? PyFloat_AsDouble(factor) : 0;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int open_work(Work *work)
{
    if (work->kind < 0 || work->kind >= KINDS || work->part < 1)
        return refuse("The kind must be known, and a part have elements.");
    work->loops = loops_of((Kind)work->kind);
    Py_ssize_t itemsize = work->loops->itemsize;
    if (work->targets && open_pieces(&work->y, work->targets, work->sizes, itemsize, 1) < 0)
        return -1;
    if (open_pieces(&work->x, work->sources, work->sizes, itemsize, 0) < 0)
        return -1;
    int fit = !work->targets || work->y.count == work->x.count;
    for (Py_ssize_t i = 0; work->targets && fit && i < work->x.count; i++)
        fit = are_alike(&work->y.pieces[i], &work->x.pieces[i]);
    return fit ? read_factors(work) : refuse("Each source needs a target with its elements in the same order.");
}

/* The parts are the same for any number of threads, and so are the sums. */
static int divide(Work *work)
{
    size_t count = 1;
    for (Py_ssize_t i = 0; i < work->x.count; i++)
        count += (size_t)(work->x.pieces[i].size / work->part) + 1;
    work->parts = count < PY_SSIZE_T_MAX / sizeof(Part) ? PyMem_Malloc(count * sizeof(Part)) : NULL;
    if (!work->parts)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < work->x.count; i++)
        for (Py_ssize_t start = 0, rest = work->x.pieces[i].size; rest > 0; start += work->part, rest -= work->part)
            work->parts[work->count++] = (Part){i, start, rest < work->part ? rest : work->part, 0, 0};
    return 0;
}

#ifdef _WIN32
static void take_parts(Work *work, Py_ssize_t threads)
{
    for (; work->next < work->count; work->next++)
        do_part(work, &work->parts[work->next]);
}
#else
static void take_next_part(void *shared)
{
    Work *work = shared;
    for (Py_ssize_t i; (i = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->count;)
        do_part(work, &work->parts[i]);
}

static void *run_thread(void *shared) { return take_next_part(shared), NULL; }

/* GOMP_parallel(function, data, threads, flags) of OpenMP runs a function in its threads and this one, and waits for them. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

static void take_parts(Work *work, Py_ssize_t threads)
{
    pthread_t others[MOST_THREADS];
    Py_ssize_t started = 0;
    if (work->parallel && threads > 1) {
        ((Parallel)(uintptr_t)work->parallel)(take_next_part, work, (unsigned)threads, 0);
        return;
    }
    while (started < threads - 1 && pthread_create(&others[started], NULL, run_thread, work) == 0)
        started++;
    take_next_part(work);
    while (started > 0)
        pthread_join(others[--started], NULL);
}
#endif

/* How many threads to use. The caller is asked about large work only, because some frameworks take long to answer. */
static Py_ssize_t count_threads(Work *work)
{
    if (!work->threads || work->x.elements < work->large || do_overlap(&work->y, work->loops->itemsize))
        return 1;
    PyObject *answer = PyObject_CallNoArgs(work->threads);
    Py_ssize_t count = -1, most = work->count < MOST_THREADS ? work->count : MOST_THREADS;
    if (answer && PyTuple_Check(answer))
        PyArg_ParseTuple(answer, "nK", &count, &work->parallel);
    else if (answer)
        count = PyLong_AsSsize_t(answer);
    Py_XDECREF(answer);
    return PyErr_Occurred() ? -1 : count < most ? count : most;
}

static int do_work(Work *work)
{
    if (open_work(work) < 0 || divide(work) < 0)
        return -1;
    if (work->targets == work->sources && do_overlap(&work->y, work->loops->itemsize)) /* in place an element would be multiplied twice */
        return refuse("Pieces that are written in place overlap.");
    Py_ssize_t threads = count_threads(work);
    if (PyErr_Occurred())
        return -1;
    PyThreadState *state = work->x.elements > HOLDS_GIL ? PyEval_SaveThread() : NULL;
    take_parts(work, threads);
    if (state)
        PyEval_RestoreThread(state);
    for (Py_ssize_t i = 0; i < work->count; i++) {
        const Part *part = &work->parts[i];
        work->x.pieces[part->piece].found += part->found < INFINITY ? part->found + part->lost : part->found;
    }
    return 0;
}

/* ---- the module ---------------------------------------------------------------------------------------------------------- */

static PyObject *is_zero(double found) { return PyBool_FromLong(found == 0); }

/* Do the work, and return a list of ``make(result)`` for each piece; None for a loop that writes. */
static PyObject *finish(Work *work, PyObject *(*make)(double))
{
    PyObject *result = do_work(work) < 0 ? NULL : make ? PyList_New(work->x.count) : Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; make && result && i < work->x.count; i++) {
        PyObject *item = make(work->x.pieces[i].found);
        if (!item || PyList_SetItem(result, i, item) < 0)
            Py_CLEAR(result);
    }
    close_pieces(&work->y);
    close_pieces(&work->x);
    PyMem_Free(work->factors);
    PyMem_Free(work->parts);
    return result;
}

#define SOURCES &PyList_Type, &work.sources, &work.sizes, &work.kind
#define TARGETS &PyList_Type, &work.targets, SOURCES
#define SHARED &work.threads, &work.large, &work.part

static PyObject *py_squares(PyObject *module, PyObject *arguments)
{
    Work work = {.loop = square, .part = PART};
    return PyArg_ParseTuple(arguments, "O!Oi|Onn", SOURCES, SHARED) ? finish(&work, PyFloat_FromDouble) : NULL;
}

static PyObject *py_fit(PyObject *module, PyObject *arguments)
{
    Work work = {.loop = look, .part = PART};
    return PyArg_ParseTuple(arguments, "O!Oidd|Onn", SOURCES, &work.least, &work.most, SHARED) ? finish(&work, is_zero) : NULL;
}

static PyObject *py_multiply(PyObject *module, PyObject *arguments)
{
    Work work = {.loop = multiply, .part = PART};
    return PyArg_ParseTuple(arguments, "O!O!OiO|Onn", TARGETS, &work.factor_or_factors, SHARED) ? finish(&work, NULL) : NULL;
}

static PyObject *py_clamp(PyObject *module, PyObject *arguments)
{
    Work work = {.loop = clamp, .part = PART};
    return PyArg_ParseTuple(arguments, "O!O!Oidd|Onn", TARGETS, &work.least, &work.most, SHARED) ? finish(&work, NULL) : NULL;
}

static PyObject *py_overlap(PyObject *module, PyObject *arguments)
{
    PyObject *pieces, *sizes;
    Py_ssize_t itemsize;
    Pieces some = {0};
    if (!PyArg_ParseTuple(arguments, "O!On", &PyList_Type, &pieces, &sizes, &itemsize))
        return NULL;
    int fit = itemsize > 0 || refuse("An element must have bytes.") == 0;
    PyObject *result = fit && open_pieces(&some, pieces, sizes, itemsize, 0) == 0 ? PyBool_FromLong(do_overlap(&some, itemsize)) : NULL;
    close_pieces(&some);
    return result;
}

/* Each but overlap has more arguments: a function that returns the number of threads, the number of elements from which it is called, the
 * number of elements in a part. The function may return the address of OpenMP's function beside the number.
 */
static PyMethodDef methods[] = {
    {"squares", py_squares, METH_VARARGS, "squares(pieces, sizes, kind): the sum of the squares of each piece, in float64."},
    {"fit", py_fit, METH_VARARGS, "fit(pieces, sizes, kind, lower, upper): whether all of a piece is between, and no NaN."},
    {"overlap", py_overlap, METH_VARARGS, "overlap(pieces, sizes, itemsize): whether two share memory."},
    {"multiply", py_multiply, METH_VARARGS, "multiply(targets, sources, sizes, kind, factor): source * factor, or its own."},
    {"clamp", py_clamp, METH_VARARGS, "clamp(targets, sources, sizes, kind, lower, upper): source between lower <= upper."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* calls share nothing; without this the import turns the lock on */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
