/*
 * What the programs share: functions of CUDA by hand-written prototypes, and simcuda's control
 * functions.
 */
#ifndef GENESIS_PRELOAD_TEST_H
#define GENESIS_PRELOAD_TEST_H

#include "checks.h"

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, UNKNOWN = 999, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, NON_BLOCKING = 1, CAPTURE_GLOBAL = 0,
    CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2,
    COPY_TO_HOST = 2,
};

typedef void *stream_t;

/* The runtime: the preload library's functions, else simcuda's own. */
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
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cudaIpcGetMemHandle(void *handle, void *block);
int cudaDeviceSynchronize(void);
int cudaSetDevice(int device);
int cudaDeviceEnablePeerAccess(int peer, unsigned flags);
int cudaMemPoolSetAccess(void *pool, const void *list, size_t count);
int cudaDeviceGetDefaultMemPool(void **pool, int device);
int cudaMemPoolTrimTo(void *pool, size_t bytes);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaMemsetAsync(void *block, int value, size_t bytes, stream_t stream);
int cudaMemset(void *block, int value, size_t bytes);
int cudaStreamCreateWithFlags(stream_t *stream, unsigned flags);
int cudaStreamDestroy(stream_t stream);
int cudaStreamSynchronize(stream_t stream);
int cudaStreamBeginCapture(stream_t stream, int mode);
int cudaStreamEndCapture(stream_t stream, void **graph);
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                     unsigned long long flags, int *found);

/* Also the runtime's, in beyond.c. */
int cudaMallocArray(void **array, const void *description, size_t width, size_t height,
                    unsigned flags);
int cudaDeviceSetMemPool(int device, void *pool);
int cudaDeviceReset(void);
void beyond_set_green(stream_t stream, void *context);
void beyond_before_wait(void (*function)(void));
void beyond_use_again(void *block, size_t bytes);

/* simcuda's control functions: simcuda/src/control.rs. */
int64_t simcuda_check(void);
size_t simcuda_violations(char *text, size_t size);
int64_t simcuda_census(const char *what);
int64_t simcuda_calls(const char *name);
int simcuda_fail(const char *call, int64_t nth, int code, int64_t times);
int simcuda_faults_clear(void);
int simcuda_limit(int device, int64_t bytes);
int simcuda_touch(int device, stream_t stream, void *address, size_t bytes, int writes);
const char *simcuda_validate(void);

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

/* The address of a block on the device. */
#define ADDRESS(block) ((unsigned long long)(uintptr_t)(block))

#endif
