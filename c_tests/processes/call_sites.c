/*
 * Blocks allocated in different places, and a profile that tells them, for tests/call_sites.rs:
 * it finds the lines with a word behind "HERE", and knows the blocks by their sizes.
 *
 * arguments: a case, the profile to write, for one case a library
 */
#define _GNU_SOURCE

#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#define APART __attribute__((noinline))

enum { ALONE = 1000, TWICE = 2000, DEEP = 4000, ON_SIGNAL = 5000, ELSEWHERE = 6000 };
enum { IN_THREADS = 7000, THREADS = 4, ROUNDS = 1000, LEVELS = 20000 };

static void *volatile kept;

/* What is done behind the call keeps it from being the last thing the function does. */
APART static void alone(void)
{
    kept = genesis_malloc(ALONE, 0, STREAM(0)); /* HERE alone */
}

APART static void twice(void)
{
    kept = genesis_malloc(TWICE, 0, STREAM(0)); /* HERE twice */
}

static void two_places(const char *library)
{
    (void)library;
    alone();
    for (int time = 0; time < 2; time++) {
        twice(); /* HERE caller */
    }
}

APART static int deep(int levels)
{
    const int below = levels > 0 ? deep(levels - 1) : 0;
    if (levels == 0) {
        kept = genesis_malloc(DEEP, 0, STREAM(0)); /* HERE deep */
    }
    return below + 1;
}

static void recursion(const char *library)
{
    (void)library;
    CHECK(deep(LEVELS) == LEVELS + 1);
}

static void on_signal(int number)
{
    (void)number;
    kept = genesis_malloc(ON_SIGNAL, 0, STREAM(0)); /* HERE handler */
}

/* raise() ends within the C library, so the interrupted code is at a known place. */
static void signal_handler(const char *library)
{
    (void)library;
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    for (int time = 0; time < 2; time++) {
        CHECK(raise(SIGUSR1) == 0); /* HERE raise */
    }
}

static void in_library(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL);
    void (*function)(size_t);
    *(void **)&function = dlsym(handle, "allocate_in_library");
    CHECK(function != NULL);
    function(ELSEWHERE);
    CHECK(dlclose(handle) == 0);
}

static void *in_thread(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
        void *block = genesis_malloc(IN_THREADS, 0, STREAM(0));
        genesis_free(block, 0, STREAM(0));
        kept = genesis_malloc(IN_THREADS, 0, STREAM(0)); /* HERE in thread */
    }
    return NULL;
}

static void threads(const char *library)
{
    (void)library;
    pthread_t running[THREADS];
    for (int index = 0; index < THREADS; index++) {
        CHECK(pthread_create(&running[index], NULL, in_thread, NULL) == 0);
    }
    for (int index = 0; index < THREADS; index++) {
        CHECK(pthread_join(running[index], NULL) == 0);
    }
}

static const struct {
    const char *name;
    void (*run)(const char *library);
} CASES[] = {
    /* clang-format off */
    {"two_places", two_places},
    {"recursion", recursion},
    {"signal_handler", signal_handler},
    {"in_library", in_library},
    {"threads", threads},
    /* clang-format on */
};

int main(int count, char **arguments)
{
    CHECK(count >= 3);
    CHECK_OK(genesis_profile_start());
    for (size_t index = 0; index < LENGTH(CASES); index++) {
        if (strcmp(arguments[1], CASES[index].name) == 0) {
            CASES[index].run(count > 3 ? arguments[3] : NULL);
            CHECK_OK(genesis_profile_write(arguments[2]));
            return 0;
        }
    }
    CHECK(!"a known case");
    return 1;
}
