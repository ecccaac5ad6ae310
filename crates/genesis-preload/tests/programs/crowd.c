/*
 * Threads that do everything at once, each with a stream of its own, and blocks that go from one to
 * another. simgpu's race detector sees every use.
 */
#include "preload.h"

#include <pthread.h>

enum { THREADS = 4, SHARED = 64, OWN = 16 };

/* Of each thread: the first argument, if there is one. */
static int rounds = 4000;
/* Threads capture their streams, each by itself: if there is a second argument. */
static int is_capturing = 0;

/* Blocks for any thread, handed on by atomic exchange. */
static void *shared[SHARED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *exchange(uint32_t index, void *block) {
    pthread_mutex_lock(&lock);
    void *former = shared[index];
    shared[index] = block;
    pthread_mutex_unlock(&lock);
    return former;
}

static void capture(stream_t stream, void *block) {
    void *graph;
    CHECK_OK(cudaStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL));
    CHECK_OK(cudaMemsetAsync(block, 3, 64, stream));
    CHECK_OK(cudaStreamEndCapture(stream, &graph));
}

static void *work(void *seed) {
    uint32_t state = (uint32_t)(uintptr_t)seed;
    stream_t stream;
    void *own[OWN] = {NULL};
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int round = 0; round < rounds; round++) {
        state = state * 1664525u + 1013904223u;
        uint32_t draw = state >> 8;
        size_t bytes = draw % 5 ? (size_t)(draw % 4096 + 1) * 64 : (draw % 64 + 1) * MIB;
        void *block = NULL;
        if (draw & 1) {
            /* Used here, on this thread's stream, and freed by any thread that finds it. */
            CHECK_OK(cudaMalloc(&block, bytes));
            CHECK_OK(cudaMemsetAsync(block, 1, bytes, stream));
            block = exchange(draw % SHARED, block);
            if (block != NULL) CHECK_OK(cudaFree(block));
        } else {
            /* In stream order, as long as it is this thread's. */
            void **place = &own[draw / 2 % OWN];
            if (*place != NULL) CHECK_OK(cudaFreeAsync(*place, stream));
            CHECK_OK(cudaMallocAsync(place, bytes, stream));
            CHECK_OK(cudaMemsetAsync(*place, 2, bytes, stream));
        }
        if (is_capturing) {
            /* Nobody may wait for the device then. */
            if (draw % 4 == 3 && own[0] != NULL) capture(stream, own[0]);
        } else if (draw % 1024 == 0) {
            CHECK_OK(cudaDeviceSynchronize());
        }
    }
    for (int index = 0; index < OWN; index++) {
        if (own[index] != NULL) CHECK_OK(cudaFreeAsync(own[index], stream));
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1) rounds = atoi(arguments[1]);
    is_capturing = count > 2;
    pthread_t threads[THREADS];
    for (uintptr_t index = 0; index < THREADS; index++) {
        CHECK_OK(pthread_create(&threads[index], NULL, work, (void *)(index + 1)));
    }
    for (int index = 0; index < THREADS; index++) CHECK_OK(pthread_join(threads[index], NULL));
    for (int index = 0; index < SHARED; index++) {
        if (shared[index] != NULL) CHECK_OK(cudaFree(shared[index]));
    }
    CHECK_OK(cudaDeviceSynchronize());
    empty_cache(0);
    genesis_stats stats = statistics(0);
    EXPECT(stats.allocations, stats.frees);
    EXPECT(0, simcuda_census("used_bytes"));
    check_violations();
    CHECK(simcuda_validate() == NULL);
    return 0;
}
