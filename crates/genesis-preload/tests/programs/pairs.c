/*
 * Prints the nanoseconds of a cudaMalloc and the cudaFree of its block: the median of many rounds.
 * With a second argument, of genesis_malloc and genesis_free instead.
 */
#include "preload.h"

#include <time.h>

enum { ROUNDS = 201, PAIRS = 4096 };

static void *(*genesis_allocate)(size_t, int, genesis_stream);
static void (*genesis_release)(void *, size_t, int, genesis_stream);

static void pair_of_cuda(size_t bytes) {
    void *block;
    CHECK_OK(cudaMalloc(&block, bytes));
    CHECK_OK(cudaFree(block));
}

static void pair_of_genesis(size_t bytes) {
    genesis_release(genesis_allocate(bytes, 0, NULL), bytes, 0, NULL);
}

static int ascending(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **arguments) {
    CHECK(count > 1);
    size_t bytes = strtoull(arguments[1], NULL, 10);
    void (*pair)(size_t) = pair_of_cuda;
    static double rounds[ROUNDS];
    if (count > 2) {
        void *library = dlopen(getenv("GENESIS_LIBRARY"), RTLD_NOW);
        CHECK(library != NULL);
        *(void **)&genesis_allocate = dlsym(library, "genesis_malloc");
        *(void **)&genesis_release = dlsym(library, "genesis_free");
        pair = pair_of_genesis;
    }
    /* The first rounds warm up. */
    for (int round = -ROUNDS; round < ROUNDS; round++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int index = 0; index < PAIRS; index++) pair(bytes);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double nanoseconds =
            (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        if (round >= 0) rounds[round] = nanoseconds / PAIRS;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, ascending);
    printf("%.1f\n", rounds[ROUNDS / 2]);
    return 0;
}
