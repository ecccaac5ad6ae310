/*
 * Checks for the tests of the C interface.
 *
 * A test is a program: it ends with status 0, or at the first check that does not hold with
 * status 1 and one line on standard error that says which. The same sources are compiled as
 * C99 and as C++17. Memory comes from the host backend, or from simcuda with a store of bytes, so
 * a block may be read and written.
 */
#ifndef GENESIS_CHECK_H
#define GENESIS_CHECK_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <genesis.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
/* What every pointer is a multiple of, in bytes. */
#define ALIGNMENT 512
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* A stream of its own: the same for the same number, below MOST_STREAMS. */
#define STREAM(number) stream_numbered((size_t)(number))
#define MOST_STREAMS 4096
#define LEGACY_STREAM ((genesis_stream)0)

#define CHECK(condition) check_that((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
/* The call succeeds. */
#define CHECK_OK(call) check_status(GENESIS_STATUS_SUCCESS, (call), #call, __FILE__, __LINE__)
/* The call fails with `status`, which is also the last error then, with a message. */
#define CHECK_FAILS(status, call)                                                                  \
    (genesis_last_error_clear(), check_status((status), (call), #call, __FILE__, __LINE__),        \
     check_last_error((status), #call, __FILE__, __LINE__))
/* The call, whatever it returns, leaves `status` as the last error, with a message. */
#define CHECK_REPORTS(status, call)                                                                \
    (genesis_last_error_clear(), (void)(call),                                                     \
     check_last_error((status), #call, __FILE__, __LINE__))
/* The last error's message has `part` in it. */
#define CHECK_MESSAGE(part) check_message((part), __FILE__, __LINE__)

/* Creates a stream, as the CUDA runtime does. */
typedef int (*stream_creator)(genesis_stream *stream, unsigned flags);

/* The runtime's function if simcuda is preloaded, else null. */
static stream_creator create_stream;

/* Before main: a child of a fork at any moment can then ask for a stream without a lock. */
__attribute__((constructor)) static void find_stream_creator(void)
{
    void *program = dlopen(NULL, RTLD_NOW);
    void *found = dlsym(program, "cudaStreamCreateWithFlags");
    memcpy(&create_stream, &found, sizeof create_stream);
}

/* The host backend takes any handle for a stream; CUDA's streams are created, once each. */
static inline genesis_stream stream_numbered(size_t number)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static genesis_stream streams[MOST_STREAMS];
    if (number >= MOST_STREAMS) {
        abort();
    }
    if (create_stream == NULL) {
        return (genesis_stream)(uintptr_t)((number + 1) * 0x1000);
    }
    pthread_mutex_lock(&lock);
    /* 1: the stream does not wait for the default stream. */
    if (streams[number] == NULL && create_stream(&streams[number], 1) != 0) {
        abort();
    }
    genesis_stream stream = streams[number];
    pthread_mutex_unlock(&lock);
    return stream;
}

static inline void check_that(int holds, const char *text, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", file, line, text,
                genesis_last_error_message_get());
        exit(1);
    }
}

static inline void check_status(genesis_status expected, genesis_status actual, const char *text,
                                const char *file, int line)
{
    if (actual != expected) {
        fprintf(stderr, "%s:%d: %s: \"%s\", not \"%s\" (last error: %s)\n", file, line, text,
                genesis_status_text_get(actual), genesis_status_text_get(expected),
                genesis_last_error_message_get());
        exit(1);
    }
}

static inline void check_last_error(genesis_status expected, const char *text, const char *file,
                                    int line)
{
    check_status(expected, genesis_last_error_get(), text, file, line);
    check_that((genesis_last_error_message_get()[0] == '\0') ==
                   (expected == GENESIS_STATUS_SUCCESS),
               "failures have a message", file, line);
}

static inline void check_message(const char *part, const char *file, int line)
{
    const char *message = genesis_last_error_message_get();
    if (strstr(message, part) == NULL) {
        fprintf(stderr, "%s:%d: \"%s\" is not in: %s\n", file, line, part, message);
        exit(1);
    }
}

/* Whether the strategy in force is the one named so in GENESIS_POOL_TYPE. */
static inline int strategy_is(const char *name)
{
    char value[64];
    CHECK_OK(genesis_option_get("GENESIS_POOL_TYPE", value, sizeof value));
    return strcmp(value, name) == 0;
}

static inline genesis_stats stats_of(int device)
{
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_stats_get(device, &stats));
    return stats;
}

/* A block that must be there: aligned, and all of it writable. */
static inline unsigned char *block_of(size_t size, genesis_stream stream)
{
    void *block = genesis_malloc(size, 0, stream);
    CHECK(block != NULL);
    CHECK((uintptr_t)block % ALIGNMENT == 0);
    return (unsigned char *)block;
}

static inline void fill(unsigned char *block, size_t size, unsigned char value)
{
    memset(block, value, size);
}

/* Whether all `size` bytes are `value`. */
static inline int is_filled(const unsigned char *block, size_t size, unsigned char value)
{
    return size == 0 || (block[0] == value && memcmp(block, block + 1, size - 1) == 0);
}

#endif /* GENESIS_CHECK_H */
