/*
 * What the programs of tests/processes.rs share: CUDA by hand-written prototypes, checks that stop,
 * and Genesis's statistics, if it is there.
 *
 * A program ends with status 0, or at the first check that does not hold with status 1 and a line
 * on standard error. The runtime is runtime.c, the driver simcuda.
 */
#ifndef GENESIS_PRELOAD_TEST_CUDA_H
#define GENESIS_PRELOAD_TEST_CUDA_H

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

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

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

#define CHECK(condition) check_that((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define EXPECT(expected, actual) \
    check_equal((long long)(expected), (long long)(actual), #actual, __FILE__, __LINE__)
#define CHECK_OK(call) EXPECT(CUDA_SUCCESS, call)

static inline void check_that(int holds, const char *text, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
        exit(1);
    }
}

static inline void check_equal(long long expected, long long actual, const char *text,
                               const char *file, int line)
{
    if (expected != actual) {
        fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, text, actual, expected);
        exit(1);
    }
}

/* The driver's function of that name, found as programs find it. */
static inline void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL);
    void *function = dlsym(driver, name);
    CHECK(function != NULL);
    return function;
}

static inline int take_genesis(struct dl_phdr_info *object, size_t size, void *path)
{
    (void)size;
    const char *name = strrchr(object->dlpi_name, '/');
    if (name == NULL || strncmp(name, "/libgenesis.so", strlen("/libgenesis.so")) != 0) {
        return 0;
    }
    *(const char **)path = object->dlpi_name;
    return 1;
}

/* libgenesis.so if the process has it; NULL if nobody has opened it. */
static inline void *genesis_library(void)
{
    const char *path = NULL;
    return dl_iterate_phdr(take_genesis, &path) ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
}

/* What Genesis has handed out on device 0 so far; −1 if it is not there. */
static inline long long served(void)
{
    void *library = genesis_library();
    if (library == NULL) {
        return -1;
    }
    genesis_status (*get)(int device, genesis_stats *stats);
    *(void **)&get = dlsym(library, "genesis_stats_get");
    CHECK(get != NULL);
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(get(0, &stats));
    return (long long)stats.allocations;
}

/* Whether Genesis serves, or is to leave everything to CUDA: what GENESIS_PRELOAD says. */
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
