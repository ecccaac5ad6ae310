/*
 * What the programs of tests/processes.rs share: CUDA by hand-written prototypes. The runtime is
 * runtime.c, the driver simcuda.
 */
#ifndef GENESIS_PRELOAD_TEST_CUDA_H
#define GENESIS_PRELOAD_TEST_CUDA_H

#include "../programs/checks.h"

enum {
    CUDA_SUCCESS = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_INSUFFICIENT_DRIVER = 35,
    CUDA_INVALID_CONTEXT = 201,
};

typedef void *cuda_stream;
typedef unsigned long long device_address;

/* The runtime. */
int cudaMalloc(void **block, size_t bytes);
int cudaFree(void *block);
int cudaMallocAsync(void **block, size_t bytes, cuda_stream stream);
int cudaFreeAsync(void *block, cuda_stream stream);
int cudaStreamCreate(cuda_stream *stream);
int cudaStreamDestroy(cuda_stream stream);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaGetLastError(void);

/* The driver's function of that name, found as programs find it. */
static inline void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL);
    void *function = dlsym(driver, name);
    CHECK(function != NULL);
    return function;
}

/* How many blocks Genesis has handed out on device 0; -1 if it is not open. */
static inline long long served(void)
{
    return genesis_library() == NULL ? -1 : (long long)statistics(0).allocations;
}

/* True if Genesis serves, false if GENESIS_PRELOAD leaves everything to CUDA. */
static inline int is_on(void)
{
    const char *value = getenv("GENESIS_PRELOAD");
    return value == NULL || strcmp(value, "off") != 0;
}

/* Of `count` allocations so far Genesis has served all, or none. Where it cannot serve, the test
   looks at what the preload library reports instead. */
#define CHECK_SERVED(count)                                                                        \
    do {                                                                                           \
        if (getenv("TEST_WITHOUT_GENESIS") == NULL) {                                              \
            EXPECT(is_on() ? (count) : -1, served());                                              \
        }                                                                                          \
    } while (0)

#endif /* GENESIS_PRELOAD_TEST_CUDA_H */
