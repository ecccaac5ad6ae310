/*
 * Functions of a runtime that simcuda does not have, as far as the tests need them.
 */
#include "preload.h"

/* There is no memory for an array while the device holds a gibibyte; what it is called is made of
   its arguments. */
int cudaMallocArray(void **array, const void *description, size_t width, size_t height,
                    unsigned flags) {
    if (description != NULL || simcuda_census("used_bytes") >= (int64_t)GIB) return OUT_OF_MEMORY;
    *array = (void *)(width * height + flags);
    return OK;
}

int cudaDeviceSetMemPool(int device, void *pool) {
    return device == 0 && pool != NULL ? OK : INVALID_VALUE;
}

/* Reports success, but nothing is lost. */
int cudaDeviceReset(void) { return OK; }
int cuDevicePrimaryCtxReset_v2(int device) { return device == 0 ? OK : INVALID_VALUE; }

/* Contexts that come and go: one stream is of a green one. */
static stream_t green_stream;
static void *green_context;

void beyond_set_green(stream_t stream, void *context) {
    green_stream = stream;
    green_context = context;
}

int cuStreamGetGreenCtx(stream_t stream, void **context) {
    *context = stream == green_stream ? green_context : NULL;
    return OK;
}

int cuGreenCtxDestroy(void *context) { return context == green_context ? OK : INVALID_VALUE; }

/* Memory of CUDA's own at an address of the test's choice, as after a reset. */
static void *again;
static size_t again_bytes;

void beyond_use_again(void *block, size_t bytes) {
    again = block;
    again_bytes = bytes;
}

static void *next(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    CHECK(function != NULL);
    return function;
}

static int is_again(unsigned long long address) {
    return again != NULL && address - ADDRESS(again) < again_bytes;
}

int cudaMalloc(void **block, size_t bytes) {
    int (*real)(void **, size_t);
    *(void **)&real = next("cudaMalloc");
    return again_bytes == bytes ? (*block = again, OK) : real(block, bytes);
}

int cudaFree(void *block) {
    int (*real)(void *);
    *(void **)&real = next("cudaFree");
    return block != NULL && block == again ? (again = NULL, OK) : real(block);
}

int cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes, unsigned long long address) {
    int (*real)(unsigned long long *, size_t *, unsigned long long);
    *(void **)&real = next("cuMemGetAddressRange_v2");
    if (!is_again(address)) return real(base, bytes, address);
    *base = ADDRESS(again);
    *bytes = again_bytes;
    return OK;
}

/* The device is the first; other attributes are not asked for. */
int cuPointerGetAttribute(void *data, int attribute, unsigned long long address) {
    int (*real)(void *, int, unsigned long long);
    *(void **)&real = next("cuPointerGetAttribute");
    if (!is_again(address)) return real(data, attribute, address);
    enum { START = 11, BYTES = 12 };
    if (attribute == START) *(unsigned long long *)data = ADDRESS(again);
    else if (attribute == BYTES) *(size_t *)data = again_bytes;
    else *(int *)data = 0;
    return OK;
}

/* A wait for the device that takes a while before it calls the driver. */
static void (*before_wait)(void);

void beyond_before_wait(void (*function)(void)) { before_wait = function; }

int cuCtxSynchronize(void) {
    int (*real)(void);
    *(void **)&real = next("cuCtxSynchronize");
    if (before_wait != NULL) before_wait();
    return real();
}
