/* Work: one of the loops of _loops.h over the pieces of _pieces.h, divided into parts that several threads take. */
#include <stdlib.h>
#ifdef _MSC_VER
#include <intrin.h>
#endif

typedef struct {
    Py_ssize_t piece, start, size;
    double sum;
} Part;

typedef struct Work Work;
typedef void (*Loop)(Work *, Part *);

struct Work {
    Loop loop;
    Kind kind;
    Pieces y, x; /* the first are written, and may be none */
    double *factors, least, most;
    Part *parts;
    long count, next;
};

#ifdef _MSC_VER
#define ADD(COUNTER, NUMBER) _InterlockedExchangeAdd(&(COUNTER), NUMBER)
#else
#define ADD(COUNTER, NUMBER) __atomic_fetch_add(&(COUNTER), NUMBER, __ATOMIC_RELAXED)
#endif

static const void *source_of(const Work *work, const Part *part)
{
    return work->x.pieces[part->piece].data + part->start * LOOPS_OF[work->kind].itemsize;
}

static void *target_of(const Work *work, const Part *part)
{
    return work->y.pieces[part->piece].data + part->start * LOOPS_OF[work->kind].itemsize;
}

static int is_large(const Work *work) { return work->x.elements >= STREAMED / LOOPS_OF[work->kind].itemsize; }

static void square_part(Work *work, Part *part) { part->sum = LOOPS_OF[work->kind].squares(source_of(work, part), part->size); }

static void multiply_part(Work *work, Part *part)
{
    LOOPS_OF[work->kind].multiply(target_of(work, part), source_of(work, part), part->size, is_large(work),
                                  work->factors[part->piece]);
}

/* In place what is large is bounded block by block: one in which all fits is only read, and need not go back to memory. Not of
 * halves, for which the look and the bounds take longer than memory.
 */
static void clamp_part(Work *work, Part *part)
{
    Py_ssize_t itemsize = LOOPS_OF[work->kind].itemsize;
    const char *x = source_of(work, part);
    char *y = target_of(work, part);
    int looks = y == x && is_large(work) && itemsize > 2;
    Py_ssize_t block = looks ? LOOK : part->size;
    for (Py_ssize_t start = 0, size; start < part->size; start += size, x += size * itemsize, y += size * itemsize) {
        size = part->size - start < block ? part->size - start : block;
        if (looks)
            prefetch(x, (size_t)(size * itemsize));
        if (!looks || !LOOPS_OF[work->kind].fits(x, size, work->least, work->most))
            LOOPS_OF[work->kind].clamp(y, x, size, is_large(work), work->least, work->most);
    }
}

static void copy_part(Work *work, Part *part)
{
    copy_bytes(target_of(work, part), source_of(work, part), part->size * LOOPS_OF[work->kind].itemsize, is_large(work));
}

static void look_at_part(Work *work, Part *part) /* 1 for what does not fit */
{
    part->sum = !LOOPS_OF[work->kind].fits(source_of(work, part), part->size, work->least, work->most);
}

/* Each thread takes the next part, until there is none. */
static void take_parts(void *data)
{
    Work *work = data;
    for (long i = ADD(work->next, 1); i < work->count; i = ADD(work->next, 1))
        work->loop(work, &work->parts[i]);
}

/* Into parts of so many elements at the most; -1 with an exception. */
static int divide(Work *work, Py_ssize_t most)
{
    size_t count = 0;
    for (Py_ssize_t i = 0; i < work->x.count; i++)
        count += (size_t)(work->x.pieces[i].size / most) + 1;
    work->parts = count < PY_SSIZE_T_MAX / sizeof(Part) ? PyMem_Malloc((count + 1) * sizeof(Part)) : NULL;
    if (!work->parts) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < work->x.count; i++)
        for (Py_ssize_t start = 0, rest = work->x.pieces[i].size; rest > 0; start += most, rest -= most)
            work->parts[work->count++] = (Part){i, start, rest < most ? rest : most, 0};
    return 0;
}

static int compare(const void *one, const void *other)
{
    const Piece *x = *(const Piece *const *)one, *y = *(const Piece *const *)other;
    return (x->data > y->data) - (x->data < y->data);
}

/* Whether some memory is written twice, which only one thread does in order; -1 with an exception. */
static int is_written_twice(const Work *work)
{
    int found = 0;
    const Piece **sorted = PyMem_Malloc((work->y.count + 1) * sizeof *sorted), *last = NULL;
    if (!sorted) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < work->y.count; i++)
        sorted[i] = &work->y.pieces[i];
    qsort(sorted, (size_t)work->y.count, sizeof *sorted, compare);
    for (Py_ssize_t i = 0; i < work->y.count; i++)
        if (sorted[i]->size) {
            found |= last && last->data + last->size * LOOPS_OF[work->kind].itemsize > sorted[i]->data;
            last = sorted[i];
        }
    PyMem_Free(sorted);
    return found;
}
