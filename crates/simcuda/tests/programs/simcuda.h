/* What the C programs share: functions by name from the library, and checks that stop. */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t address_t;
typedef void *stream_t;
typedef uint64_t event_t;

static void *library;

static void *find(const char *name) {
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) { fprintf(stderr, "%s is not there\n", name); exit(2); }
    return function;
}

#define CALL(name, ...) (((int (*)())find(#name))(__VA_ARGS__))
#define LONG(name, ...) (((int64_t (*)())find(#name))(__VA_ARGS__))
#define EXPECT(expected, actual) do { \
    long long expected_ = (long long)(expected), actual_ = (long long)(actual); \
    if (expected_ != actual_) { \
        fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual, actual_, expected_); \
        exit(1); \
    } } while (0)
#define OK(name, ...) EXPECT(0, CALL(name, __VA_ARGS__))

enum {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900,
};

static void open_driver(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(2); }
}

/* The driver, started, with the context of a device current. */
static inline void start(int device) {
    void *context;
    open_driver();
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
}

#endif
