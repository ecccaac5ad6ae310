/*
 * Who lets go of an interpreter's global lock, and when: CuPy's functions while they wait for a
 * device, and nobody else.
 *
 * The interpreter is a stand-in: the functions of CPython that the library looks for, exported by
 * this program. Those that it has no reason to call here end the program.
 */
#include "../check.h"

#include <pthread.h>

enum { BLOCK = 48 };

static pthread_mutex_t global_lock = PTHREAD_MUTEX_INITIALIZER;
static int has_lock;
static int times_let_go;
static int is_finalizing;
/* What the library takes for a thread's state, and for any other object. */
static int state, object;
int _Py_NoneStruct;

static void *nothing(void)
{
    return NULL;
}

static void never(const char *name)
{
    fprintf(stderr, "%s was called\n", name);
    exit(1);
}

#define NEVER(name)                                                                                \
    void name(void);                                                                               \
    void name(void)                                                                                \
    {                                                                                              \
        never(#name);                                                                              \
    }

NEVER(PyGILState_Ensure)
NEVER(PyGILState_Release)
NEVER(PyFrame_GetBack)
NEVER(PyFrame_GetCode)
NEVER(PyFrame_GetLineNumber)
NEVER(PyCode_Addr2Line)
NEVER(PyUnicode_AsUTF8AndSize)

int Py_IsInitialized(void);
int Py_IsInitialized(void)
{
    return 1;
}

int Py_IsFinalizing(void);
int Py_IsFinalizing(void)
{
    return is_finalizing;
}

void *PyGILState_GetThisThreadState(void);
void *PyGILState_GetThisThreadState(void)
{
    return &state;
}

void *PyThreadState_GetUnchecked(void);
void *PyThreadState_GetUnchecked(void)
{
    return has_lock ? &state : NULL;
}

void *PyEval_SaveThread(void);
void *PyEval_SaveThread(void)
{
    CHECK(has_lock);
    has_lock = 0;
    times_let_go++;
    CHECK(pthread_mutex_unlock(&global_lock) == 0);
    return &state;
}

void PyEval_RestoreThread(void *saved);
void PyEval_RestoreThread(void *saved)
{
    CHECK(saved == &state && !has_lock);
    CHECK(pthread_mutex_lock(&global_lock) == 0);
    has_lock = 1;
}

void *PyEval_GetFrame(void);
void *PyEval_GetFrame(void)
{
    return nothing();
}

/* For the function that is to be called at the interpreter's end. */
void *PyImport_ImportModule(const char *name);
void *PyImport_ImportModule(const char *name)
{
    CHECK(has_lock && strcmp(name, "atexit") == 0);
    return &object;
}

void *PyObject_GetAttrString(void *of, const char *name);
void *PyObject_GetAttrString(void *of, const char *name)
{
    CHECK(of == &object && strcmp(name, "register") == 0);
    return &object;
}

void *PyCFunction_NewEx(const void *method, void *self, void *module);
void *PyCFunction_NewEx(const void *method, void *self, void *module)
{
    CHECK(method != NULL && self == NULL && module == NULL);
    return &object;
}

void *PyObject_CallFunctionObjArgs(void *function, ...);
void *PyObject_CallFunctionObjArgs(void *function, ...)
{
    CHECK(function == &object && has_lock);
    return &_Py_NoneStruct;
}

void Py_IncRef(void *referred);
void Py_IncRef(void *referred)
{
    (void)referred;
}

void Py_DecRef(void *referred);
void Py_DecRef(void *referred)
{
    (void)referred;
    CHECK(has_lock);
}

void PyErr_Fetch(void **kind, void **value, void **traceback);
void PyErr_Fetch(void **kind, void **value, void **traceback)
{
    *kind = *value = *traceback = NULL;
}

void PyErr_Restore(void *kind, void *value, void *traceback);
void PyErr_Restore(void *kind, void *value, void *traceback)
{
    CHECK(kind == NULL && value == NULL && traceback == NULL);
}

static void take_lock(void)
{
    CHECK(pthread_mutex_lock(&global_lock) == 0);
    has_lock = 1;
}

static void give_lock(void)
{
    has_lock = 0;
    CHECK(pthread_mutex_unlock(&global_lock) == 0);
}

typedef void *(*allocator)(genesis_stream stream, size_t size, int device);

static void *plain_malloc(genesis_stream stream, size_t size, int device)
{
    return genesis_malloc(size, device, stream);
}

/* Leaves a block cached on one stream; a request for as much on another has to wait for it. */
static int times_while_waiting(allocator allocate)
{
    void *const cached = allocate(STREAM(1), BLOCK * MIB, 0);
    CHECK(cached != NULL);
    const int before = times_let_go;
    genesis_cupy_free(STREAM(1), cached, 0);
    void *const again = allocate(STREAM(1), BLOCK * MIB, 0);
    CHECK(again == cached);
    genesis_cupy_free(STREAM(1), again, 0);
    /* Nothing has blocked. */
    CHECK(times_let_go == before);
    void *const block = allocate(STREAM(2), BLOCK * MIB, 0);
    CHECK(block != NULL);
    const int times = times_let_go - before;
    genesis_free(block, BLOCK * MIB, 0, STREAM(2));
    CHECK_OK(genesis_cache_empty(0));
    return times;
}

int main(void)
{
    take_lock();
    CHECK(times_while_waiting(genesis_cupy_malloc) > 0);
    CHECK(has_lock);
    /* Others may also hold locks of their own. */
    CHECK(times_while_waiting(plain_malloc) == 0);
    is_finalizing = 1;
    CHECK(times_while_waiting(genesis_cupy_malloc) == 0);
    is_finalizing = 0;
    give_lock();
    CHECK(times_while_waiting(genesis_cupy_malloc) == 0);
    return 0;
}
