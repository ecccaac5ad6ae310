/*
 * Threads: a thousand at once, each with a stream of its own and so many rounds; and threads without
 * a context, whose calls end with the driver's own error.
 */
#include "cuda.h"

#include <pthread.h>

enum { THREADS = 1000 };

static size_t rounds;

static pthread_barrier_t everybody;

static void *work(void *argument)
{
    void *blocks[2];
    cuda_stream stream;
    const size_t number = *(size_t *)argument;
    CHECK_OK(cudaStreamCreate(&stream));
    pthread_barrier_wait(&everybody);
    for (size_t round = 0; round < rounds; round++) {
        CHECK_OK(cudaMalloc(&blocks[0], 512 * (1 + (number + round) % 100)));
        CHECK_OK(cudaMallocAsync(&blocks[1], 512 * (1 + number % 10), stream));
        CHECK_OK(cudaFree(blocks[0]));
        CHECK_OK(cudaFreeAsync(blocks[1], stream));
    }
    CHECK_OK(cudaStreamDestroy(stream));
    return NULL;
}

static void crowd(void)
{
    static pthread_t threads[THREADS];
    static size_t numbers[THREADS];
    pthread_attr_t small;
    CHECK(pthread_barrier_init(&everybody, NULL, THREADS) == 0);
    CHECK(pthread_attr_init(&small) == 0);
    CHECK(pthread_attr_setstacksize(&small, 256 * KIB) == 0);
    for (size_t index = 0; index < THREADS; index++) {
        numbers[index] = index;
        CHECK(pthread_create(&threads[index], &small, work, &numbers[index]) == 0);
    }
    for (size_t index = 0; index < THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK_SERVED(2LL * THREADS * (long long)rounds);
}

static int (*allocate)(device_address *block, size_t bytes);
static int (*release)(device_address block);

static void *without_a_context(void *block)
{
    device_address other = 0;
    EXPECT(CUDA_INVALID_CONTEXT, allocate(&other, MIB));
    EXPECT(0, other);
    if (block != NULL) {
        /* The driver frees by address, with or without a context. */
        const int code = release((device_address)(uintptr_t)block);
        CHECK(code == CUDA_SUCCESS || code == CUDA_INVALID_CONTEXT);
    }
    return NULL;
}

static void without_contexts(void)
{
    pthread_t thread;
    device_address block = 0;
    void *context;
    int (*init)(unsigned int flags);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    *(void **)&init = driver_function("cuInit");
    *(void **)&retain = driver_function("cuDevicePrimaryCtxRetain");
    *(void **)&set_current = driver_function("cuCtxSetCurrent");
    *(void **)&allocate = driver_function("cuMemAlloc_v2");
    *(void **)&release = driver_function("cuMemFree_v2");
    EXPECT(CUDA_NOT_INITIALIZED, allocate(&block, MIB));
    CHECK_OK(init(0));
    without_a_context(NULL);
    CHECK_OK(retain(&context, 0));
    CHECK_OK(set_current(context));
    CHECK_OK(allocate(&block, MIB));
    CHECK_SERVED(1);
    CHECK(pthread_create(&thread, NULL, without_a_context, (void *)(uintptr_t)block) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* The main thread's context is what it was. */
    CHECK_OK(allocate(&block, MIB));
    CHECK_OK(set_current(NULL));
    EXPECT(CUDA_INVALID_CONTEXT, allocate(&block, MIB));
    CHECK_SERVED(2);
}

int main(int count, char **arguments)
{
    CHECK(count >= 2);
    if (strcmp(arguments[1], "crowd") == 0) {
        CHECK(count == 3);
        rounds = strtoul(arguments[2], NULL, 10);
        crowd();
    } else {
        CHECK(strcmp(arguments[1], "without_contexts") == 0);
        without_contexts();
    }
    return 0;
}
