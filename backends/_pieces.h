/* What Python hands over: pieces of memory, each an object with a buffer, or an address and a number of elements, for which the
 * caller vouches.
 */
typedef struct {
    char *data;
    Py_ssize_t size;
    double sum;       /* what a loop that only reads has found */
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
    some->count = 0;
}

static int open_address(Piece *piece, PyObject *address)
{
    piece->data = PyLong_AsVoidPtr(address);
    if (!PyErr_Occurred() && (piece->size < 0 || (!piece->data && piece->size)))
        PyErr_SetString(PyExc_ValueError, "Of a piece that is an address the number of elements is known.");
    return PyErr_Occurred() ? -1 : 0;
}

/* An address, or an object whose buffer is one piece of memory without gaps; -1 elements are as many as the buffer has. */
static int open_piece(Piece *piece, PyObject *item, Py_ssize_t size, Py_ssize_t itemsize, int writable)
{
    piece->size = size;
    piece->sum = 0;
    piece->buffer.obj = NULL;
    if (size > PY_SSIZE_T_MAX / itemsize) {
        PyErr_Format(PyExc_ValueError, "A piece cannot have %zd elements.", size);
        return -1;
    }
    if (PyLong_Check(item))
        return open_address(piece, item);
    if (PyObject_GetBuffer(item, &piece->buffer, PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        if (PyErr_ExceptionMatches(PyExc_ValueError)) /* what NumPy says of an array with gaps, or one that is read-only */
            PyErr_SetString(PyExc_BufferError, "A piece is memory without gaps, and a target can be written.");
        return -1;
    }
    piece->data = piece->buffer.buf;
    if (size < 0)
        piece->size = piece->buffer.len / itemsize;
    if (piece->buffer.itemsize != itemsize || piece->buffer.len != piece->size * itemsize)
        PyErr_Format(PyExc_ValueError, "A buffer has %zd bytes, and not %zd elements.", piece->buffer.len, piece->size);
    else if (piece->size && (uintptr_t)piece->data % (uintptr_t)itemsize)
        PyErr_SetString(PyExc_BufferError, "A buffer begins at a multiple of its elements' size.");
    else
        return 0;
    PyBuffer_Release(&piece->buffer);
    return -1;
}

/* The number of elements that a list of them has for a piece; -1 for None. */
static Py_ssize_t size_of(PyObject *sizes, Py_ssize_t i)
{
    Py_ssize_t size = sizes == Py_None ? -1 : PyLong_AsSsize_t(PyList_GetItem(sizes, i));
    if (sizes != Py_None && size < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "A piece cannot have %zd elements.", size);
    return size;
}

static int open_pieces(Pieces *some, PyObject *items, PyObject *sizes, Py_ssize_t itemsize, int writable)
{
    Py_ssize_t count = PyList_Size(items);
    if (count < 0 || (sizes != Py_None && PyList_Size(sizes) != count)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "There must be a size for each piece.");
        return -1;
    }
    some->pieces = PyMem_Malloc((count + 1) * sizeof(Piece));
    if (!some->pieces) {
        PyErr_NoMemory();
        return -1;
    }
    for (; some->count < count; some->count++) {
        Piece *piece = &some->pieces[some->count];
        Py_ssize_t size = size_of(sizes, some->count);
        if (PyErr_Occurred() || open_piece(piece, PyList_GetItem(items, some->count), size, itemsize, writable) < 0)
            return -1;
        some->elements += piece->size;
    }
    return 0;
}

/* Whether two pieces are of one size, with the elements in the same order; of an address the caller knows. */
static int are_alike(const Piece *y, const Piece *x)
{
    const Py_buffer *to = &y->buffer, *from = &x->buffer;
    return y->size == x->size && (!to->obj || !from->obj || (PyBuffer_IsContiguous(to, 'C') && PyBuffer_IsContiguous(from, 'C')) ||
                                  (PyBuffer_IsContiguous(to, 'F') && PyBuffer_IsContiguous(from, 'F')));
}
