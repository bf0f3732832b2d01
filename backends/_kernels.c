/* The module: what Python calls.
 *
 * gradclip works without this module; kernels.py says what is done then.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_loops.h"
#include "_avx2.h"
#include "_pieces.h"
#include "_work.h"

enum { HOLDS_GIL = 1 << 14 };   /* up to so many elements other threads wait no longer than for a call */

/* How large work is done: by a function that is handed it, from so many elements on, in parts of so many. */
typedef struct {
    PyObject *run;
    Py_ssize_t large, part;
} Sharing;

#define ALONE {Py_None, 0, 0}
#define SHARING(HOW) &(HOW).run, &(HOW).large, &(HOW).part

static const char NAME[] = "gradclip work";

static void close_work(PyObject *capsule)
{
    Work *work = PyCapsule_GetPointer(capsule, NAME);
    release(&work->y);
    release(&work->x);
    PyMem_Free(work->factors);
    PyMem_Free(work->parts);
    PyMem_Free(work);
}

static int open_both(Work *work, PyObject *targets, PyObject *sources, PyObject *sizes)
{
    Py_ssize_t itemsize = LOOPS_OF[work->kind].itemsize;
    if ((targets && open_pieces(&work->y, targets, sizes, itemsize, 1) < 0) ||
        open_pieces(&work->x, sources, sizes, itemsize, 0) < 0)
        return -1;
    int fit = !targets || work->y.count == work->x.count;
    for (Py_ssize_t i = 0; targets && fit && i < work->x.count; i++)
        fit = are_alike(&work->y.pieces[i], &work->x.pieces[i]);
    if (!fit)
        PyErr_SetString(PyExc_ValueError, "There is a target for each source, with its elements in the same order.");
    return fit ? 0 : -1;
}

/* A capsule with the work, which lives as long as anybody holds that: a thread too that outlives an interrupted call. */
static PyObject *open_work(Loop loop, int kind, PyObject *targets, PyObject *sources, PyObject *sizes, double least, double most,
                           Work **made)
{
    if (kind < 0 || kind >= KINDS || (sizes != Py_None && !PyList_Check(sizes))) {
        PyErr_SetString(PyExc_ValueError, "The kind must be known, and the sizes a list or None.");
        return NULL;
    }
    Work *work = *made = PyMem_Calloc(1, sizeof *work);
    if (!work)
        return PyErr_NoMemory();
    work->loop = loop;
    work->kind = (Kind)kind;
    work->least = least;
    work->most = most;
    PyObject *capsule = PyCapsule_New(work, NAME, close_work);
    if (!capsule)
        PyMem_Free(work);
    else if (open_both(work, targets, sources, sizes) < 0)
        Py_CLEAR(capsule);
    return capsule;
}

static void do_here(Work *work)
{
    PyThreadState *state = work->x.elements > HOLDS_GIL ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t i = 0; i < work->x.count; i++) {
        Part all = {i, 0, work->x.pieces[i].size, 0};
        work->loop(work, &all);
        work->x.pieces[i].sum = all.sum;
    }
    if (state)
        PyEval_RestoreThread(state);
}

/* Do it here, or have ``run`` call ``take`` in several threads where there are ``large`` elements or more. */
static int do_work(PyObject *capsule, Work *work, const Sharing *how)
{
    int is_shared = how->run != Py_None && work->x.elements >= how->large && how->part > 0;
    int twice = is_shared ? is_written_twice(work) : 0;
    if (twice < 0)
        return -1;
    if (!is_shared || twice) {
        do_here(work);
        return 0;
    }
    if (divide(work, how->part) < 0)
        return -1;
    PyObject *result = PyObject_CallFunctionObjArgs(how->run, capsule, NULL);
    ADD(work->next, work->count); /* who comes late, or works on after an exception, finds nothing more to do */
    for (long i = 0; i < work->count; i++)
        work->x.pieces[work->parts[i].piece].sum += work->parts[i].sum;
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* GOMP_parallel(function, data, threads, flags), of GNU's OpenMP, LLVM's or Intel's. It runs the function in this thread and
 * others, of which there may be none, and waits for them.
 */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

static PyObject *py_take(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *address = NULL;
    unsigned threads = 1;
    if (!PyArg_ParseTuple(arguments, "O|O!I", &capsule, &PyLong_Type, &address, &threads))
        return NULL;
    Work *work = PyCapsule_GetPointer(capsule, NAME);
    Parallel parallel = address ? (Parallel)(uintptr_t)PyLong_AsVoidPtr(address) : NULL;
    if (!work || PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (parallel)
        parallel(take_parts, work, threads, 0);
    else
        take_parts(work);
    Py_END_ALLOW_THREADS
    return Py_NewRef(Py_None);
}

static PyObject *is_zero(double sum) { return PyBool_FromLong(sum == 0); }

/* A list of what ``make`` makes of the sum for each piece. */
static PyObject *found_by(const Work *work, PyObject *(*make)(double))
{
    PyObject *result = PyList_New(work->x.count);
    for (Py_ssize_t i = 0; result && i < work->x.count; i++) {
        PyObject *item = make(work->x.pieces[i].sum);
        if (!item || PyList_SetItem(result, i, item) < 0)
            Py_CLEAR(result);
    }
    return result;
}

static PyObject *py_squares(PyObject *module, PyObject *arguments)
{
    PyObject *pieces, *sizes, *result = NULL;
    Sharing how = ALONE;
    Work *work;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!Oi|Onn", &PyList_Type, &pieces, &sizes, &kind, SHARING(how)))
        return NULL;
    PyObject *capsule = open_work(square_part, kind, NULL, pieces, sizes, 0, 0, &work);
    if (capsule && do_work(capsule, work, &how) == 0)
        result = found_by(work, PyFloat_FromDouble);
    Py_XDECREF(capsule);
    return result;
}

static PyObject *py_fit(PyObject *module, PyObject *arguments)
{
    PyObject *pieces, *sizes, *result = NULL;
    double least, most;
    Sharing how = ALONE;
    Work *work;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!Oidd|Onn", &PyList_Type, &pieces, &sizes, &kind, &least, &most, SHARING(how)))
        return NULL;
    PyObject *capsule = open_work(look_at_part, kind, NULL, pieces, sizes, least, most, &work);
    if (capsule && do_work(capsule, work, &how) == 0)
        result = found_by(work, is_zero);
    Py_XDECREF(capsule);
    return result;
}

static int read_factors(Work *work, PyObject *factors)
{
    work->factors = PyMem_Malloc((work->x.count + 1) * sizeof(double));
    if (!work->factors)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < work->x.count && !PyErr_Occurred(); i++) {
        PyObject *factor = PyList_Check(factors) ? PyList_GetItem(factors, i) : factors;
        double number = factor ? PyFloat_AsDouble(factor) : 0;
        work->factors[i] = isnan(number) ? NAN : number; /* the one that to_bfloat16 keeps */
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *py_multiply(PyObject *module, PyObject *arguments)
{
    PyObject *targets, *sources, *sizes, *factors;
    Sharing how = ALONE;
    Work *work;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!O!OiO|Onn", &PyList_Type, &targets, &PyList_Type, &sources, &sizes, &kind, &factors,
                          SHARING(how)))
        return NULL;
    PyObject *capsule = open_work(multiply_part, kind, targets, sources, sizes, 0, 0, &work);
    int is_done = capsule && read_factors(work, factors) == 0 && do_work(capsule, work, &how) == 0;
    Py_XDECREF(capsule);
    return is_done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *py_clamp(PyObject *module, PyObject *arguments)
{
    PyObject *targets, *sources, *sizes;
    double least, most;
    Sharing how = ALONE;
    Work *work;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!O!Oidd|Onn", &PyList_Type, &targets, &PyList_Type, &sources, &sizes, &kind, &least, &most,
                          SHARING(how)))
        return NULL;
    PyObject *capsule = open_work(clamp_part, kind, targets, sources, sizes, least, most, &work);
    int is_done = capsule && do_work(capsule, work, &how) == 0;
    Py_XDECREF(capsule);
    return is_done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *py_copy(PyObject *module, PyObject *arguments)
{
    PyObject *targets, *sources, *sizes;
    Sharing how = ALONE;
    Work *work;
    int kind;
    if (!PyArg_ParseTuple(arguments, "O!O!Oi|Onn", &PyList_Type, &targets, &PyList_Type, &sources, &sizes, &kind, SHARING(how)))
        return NULL;
    PyObject *capsule = open_work(copy_part, kind, targets, sources, sizes, 0, 0, &work);
    int is_done = capsule && do_work(capsule, work, &how) == 0;
    Py_XDECREF(capsule);
    return is_done ? Py_NewRef(Py_None) : NULL;
}

/* After these arguments all but take have three more: who runs large work, from how many elements on, and how many to a part. */
static PyMethodDef methods[] = {
    {"squares", py_squares, METH_VARARGS, "squares(pieces, sizes, kind): the sum of the squares of each piece, in float64."},
    {"multiply", py_multiply, METH_VARARGS, "multiply(targets, sources, sizes, kind, factor): source * factor, or its own."},
    {"clamp", py_clamp, METH_VARARGS, "clamp(targets, sources, sizes, kind, lower, upper): source between lower <= upper."},
    {"copy", py_copy, METH_VARARGS, "copy(targets, sources, sizes, kind): source as it is, to the bit."},
    {"fit", py_fit, METH_VARARGS, "fit(pieces, sizes, kind, lower, upper): whether all of a piece is between, and no NaN."},
    {"take", py_take, METH_VARARGS,
     "take(work, parallel, threads): do parts of what ``run`` was given, until there are none left; here, or in threads of OpenMP,\n"
     "where ``parallel`` is the address of its ``GOMP_parallel``."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    choose_loops();
    return PyModuleDef_Init(&definition);
}
