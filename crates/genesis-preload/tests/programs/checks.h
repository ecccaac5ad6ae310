/*
 * What all programs of these tests share: checks, and Genesis's statistics, if it is open.
 *
 * A program ends with status 0, or at the first check that fails with status 1 and a line on
 * standard error.
 */
#ifndef GENESIS_PRELOAD_TEST_CHECKS_H
#define GENESIS_PRELOAD_TEST_CHECKS_H

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

#define CHECK(condition) expect(1, (condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define EXPECT(expected, actual) \
    expect((long long)(expected), (long long)(actual), #actual, __FILE__, __LINE__)
#define CHECK_OK(call) EXPECT(0, call)

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

/* libgenesis.so, or NULL if the process has not opened it. */
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

#endif
