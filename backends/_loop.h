/* The loops over one dtype. Before each #include: STORED is the type in memory, WIDE the one that is computed with, FLAG an integer
 * as wide as that, and NAME the suffix of all functions here and of those that convert, from_NAME and to_NAME.
 *
 * memcpy reads and writes elements at any address, aligned or not. Compilers make one instruction of it.
 */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define OF(function) JOIN(function, NAME)

static inline STORED OF(load)(const void *x, Py_ssize_t i)
{
    STORED v;
    memcpy(&v, (const char *)x + i * (Py_ssize_t)sizeof v, sizeof v);
    return v;
}

static inline void OF(store)(void *y, Py_ssize_t i, STORED v) { memcpy((char *)y + i * (Py_ssize_t)sizeof v, &v, sizeof v); }

FOR_EACH_PROCESSOR static double OF(squares)(const void *x, Py_ssize_t size)
{
    double lanes[LANES] = {0}, sum = 0;
    Py_ssize_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double value = OF(from)(OF(load)(x, i + j));
            lanes[j] += value * value;
        }
    for (; i < size; i++) {
        double value = OF(from)(OF(load)(x, i));
        sum += value * value;
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] += lanes[j + half];
    return sum + lanes[0];
}

FOR_EACH_PROCESSOR static void OF(multiply)(void *y, const void *x, Py_ssize_t size, double number)
{
    WIDE factor = (WIDE)number;
    for (Py_ssize_t i = 0; i < size; i++)
        OF(store)(y, i, OF(to)(OF(from)(OF(load)(x, i)) * factor));
}

/* Elements between the bounds keep their bits, and so does a NaN. */
FOR_EACH_PROCESSOR static void OF(clamp)(void *y, const void *x, Py_ssize_t size, double least, double most)
{
    STORED lower = OF(to)((WIDE)least), upper = OF(to)((WIDE)most);
    WIDE low = OF(from)(lower), high = OF(from)(upper);
    for (Py_ssize_t i = 0; i < size; i++) {
        STORED v = OF(load)(x, i), between = high < OF(from)(v) ? upper : v; /* in this order one instruction of x86 */
        OF(store)(y, i, low > OF(from)(between) ? lower : between);
    }
}

FOR_EACH_PROCESSOR static int OF(fits)(const void *x, Py_ssize_t size, double least, double most)
{
    WIDE low = OF(from)(OF(to)((WIDE)least)), high = OF(from)(OF(to)((WIDE)most));
    FLAG all_fit = 1;
    for (Py_ssize_t i = 0; i < size; i++) {
        WIDE v = OF(from)(OF(load)(x, i));
        all_fit &= (FLAG)((v >= low) & (v <= high));
    }
    return all_fit != 0;
}

#undef STORED
#undef WIDE
#undef FLAG
#undef NAME
#undef OF
#undef JOIN
#undef JOIN_
