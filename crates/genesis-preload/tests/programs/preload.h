/*
 * What the programs share: functions of CUDA by hand-written prototypes, checks that stop, Genesis's
 * statistics, and simcuda's control functions.
 *
 * A program ends with status 0, or at the first check that does not hold with status 1 and a line
 * on standard error.
 */
#ifndef GENESIS_PRELOAD_TEST_H
#define GENESIS_PRELOAD_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <genesis.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, UNKNOWN = 999, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, NON_BLOCKING = 1, CAPTURE_GLOBAL = 0, COPY_TO_HOST = 2,
};

typedef void *stream_t;

/* The runtime; simcuda's own where the preload library has none. */
int cudaMalloc(void **block, size_t bytes);
int cudaFree(void *block);
int cudaMallocAsync(void **block, size_t bytes, stream_t stream);
int cudaMallocAsync_ptsz(void **block, size_t bytes, stream_t stream);
int cudaMallocFromPoolAsync(void **block, size_t bytes, void *pool, stream_t stream);
int cudaFreeAsync(void *block, stream_t stream);
int cudaFreeAsync_ptsz(void *block, stream_t stream);
int cudaMallocPitch(void **block, size_t *pitch, size_t width, size_t height);
int cudaMallocManaged(void **block, size_t bytes, unsigned flags);
int cudaMallocHost(void **block, size_t bytes);
int cudaFreeHost(void *block);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaIpcGetMemHandle(void *handle, void *block);
int cudaDeviceSynchronize(void);
int cudaSetDevice(int device);
int cudaDeviceGetDefaultMemPool(void **pool, int device);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaMemsetAsync(void *block, int value, size_t bytes, stream_t stream);
int cudaMemset(void *block, int value, size_t bytes);
int cudaStreamCreateWithFlags(stream_t *stream, unsigned flags);
int cudaStreamSynchronize(stream_t stream);
int cudaStreamBeginCapture(stream_t stream, int mode);
int cudaStreamEndCapture(stream_t stream, void **graph);
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                     unsigned long long flags, int *found);

/* The runtime's as well, of beyond.c. */
int cudaMallocArray(void **array, const void *description, size_t width, size_t height,
                    unsigned flags);
int cudaDeviceSetMemPool(int device, void *pool);
int cudaDeviceReset(void);

/* simcuda's control functions: simcuda/src/control.rs. */
int64_t simcuda_check(void);
size_t simcuda_violations(char *text, size_t size);
int64_t simcuda_census(const char *what);
int64_t simcuda_calls(const char *name);
int simcuda_fail(const char *call, int64_t nth, int code, int64_t times);
int simcuda_faults_clear(void);
int simcuda_limit(int device, int64_t bytes);
const char *simcuda_validate(void);

#define CHECK(condition) expect(1, (condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define EXPECT(expected, actual) \
    expect((long long)(expected), (long long)(actual), #actual, __FILE__, __LINE__)
#define CHECK_OK(call) EXPECT(OK, call)

static inline void expect(long long expected, long long actual, const char *text,
                          const char *file, int line) {
    if (expected != actual) {
        fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, text, actual, expected);
        exit(1);
    }
}

static inline int take_genesis(struct dl_phdr_info *object, size_t size, void *path) {
    (void)size;
    const char *name = strrchr(object->dlpi_name, '/');
    if (name == NULL || strncmp(name, "/libgenesis.so", strlen("/libgenesis.so")) != 0) return 0;
    *(const char **)path = object->dlpi_name;
    return 1;
}

/* libgenesis.so if the process has it; NULL if nobody has opened it. */
static inline void *genesis_library(void) {
    const char *path = NULL;
    return dl_iterate_phdr(take_genesis, &path) ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
}

/* A function of libgenesis.so, which must be open. */
static inline void *genesis_function(const char *name) {
    void *library = genesis_library();
    CHECK(library != NULL);
    void *function = dlsym(library, name);
    CHECK(function != NULL);
    return function;
}

/* Genesis's statistics of a device. */
static inline genesis_stats statistics(int device) {
    genesis_status (*get)(int, genesis_stats *);
    *(void **)&get = genesis_function("genesis_stats_get");
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(get(device, &stats));
    return stats;
}

/* Genesis gives back what it caches. */
static inline void empty_cache(int device) {
    genesis_status (*empty)(int);
    *(void **)&empty = genesis_function("genesis_cache_empty");
    CHECK_OK(empty(device));
}

/* simcuda has found no race and no misuse. */
static inline void check_violations(void) {
    if (simcuda_check() != 0) {
        char text[4096];
        simcuda_violations(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
}

/* The address of a block on the device, from whatever CUDA calls it. */
#define ADDRESS(block) ((unsigned long long)(uintptr_t)(block))

#endif
