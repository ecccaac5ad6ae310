/*
 * Streams that share handles, and captures during other threads' frees: streams stand still
 * (SIMCUDA_PROGRESS=manual), and simgpu's race detector sees every use. The argument names the
 * case.
 */
#include "preload.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4 << 20, MANY = 700, MOST_CREATED = 64 };

static const stream_t PER_THREAD = (stream_t)2;

static void *allocate(size_t bytes) {
    void *block = NULL;
    CHECK_OK(cudaMalloc(&block, bytes));
    return block;
}

static void in_thread(void *(*work)(void *), void *argument) {
    pthread_t thread;
    CHECK_OK(pthread_create(&thread, NULL, work, argument));
    CHECK_OK(pthread_join(thread, NULL));
}

/* Another thread uses the block on its own default stream and frees it in that order. */
static void *use_and_free(void *block) {
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaMemsetAsync(block, 1, BYTES, PER_THREAD));
    CHECK_OK(cudaFreeAsync_ptsz(block, NULL));
    return NULL;
}

/* Default streams of two threads have one handle and are two streams. */
static void per_thread(void) {
    void *block = NULL;
    for (int round = 0; round < 8; round++) {
        CHECK_OK(cudaMallocAsync_ptsz(&block, BYTES, NULL));
        CHECK_OK(cudaMemsetAsync(block, 2, BYTES, PER_THREAD));
        CHECK_OK(cudaStreamSynchronize(PER_THREAD));
        in_thread(use_and_free, block);
    }
}

/* A stream with the handle of one that was just destroyed; the driver reuses handles. */
static stream_t made_again(stream_t former) {
    stream_t created[MOST_CREATED];
    for (int count = 0; count < MOST_CREATED; count++) {
        CHECK_OK(cudaStreamCreateWithFlags(&created[count], NON_BLOCKING));
        if (created[count] == former) {
            while (count-- > 0) CHECK_OK(cudaStreamDestroy(created[count]));
            return former;
        }
    }
    CHECK(!"a handle is given again");
    return NULL;
}

/* A stream is destroyed with work on it, and another one has its handle. */
static void made_and_destroyed(void) {
    stream_t stream;
    void *block = NULL, *other = NULL, *recorded = NULL;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int round = 0; round < 8; round++) {
        /* Freed in its order, and in the order of a stream whose memory another stream has. */
        CHECK_OK(cudaMallocAsync(&block, BYTES, stream));
        CHECK_OK(cudaMallocAsync(&recorded, BYTES, NULL));
        CHECK_OK(cudaStreamSynchronize(NULL));
        CHECK_OK(cudaMemsetAsync(block, 1, BYTES, stream));
        CHECK_OK(cudaMemsetAsync(recorded, 1, BYTES, stream));
        CHECK_OK(cudaFreeAsync(block, stream));
        CHECK_OK(cudaFreeAsync(recorded, stream));
        CHECK_OK(cudaStreamDestroy(stream));
        stream = made_again(stream);
        CHECK_OK(cudaMallocAsync(&other, BYTES, stream));
        CHECK_OK(cudaMemsetAsync(other, 2, BYTES, stream));
        /* A block that outlives its stream, and is used and freed in the order of the new one. */
        CHECK_OK(cudaStreamSynchronize(stream));
        CHECK_OK(cudaStreamDestroy(stream));
        stream = made_again(stream);
        CHECK_OK(cudaMemsetAsync(other, 3, BYTES, stream));
        CHECK_OK(cudaFreeAsync(other, stream));
        CHECK_OK(cudaMallocAsync(&other, BYTES, NULL));
        CHECK_OK(cudaMemsetAsync(other, 4, BYTES, NULL));
        CHECK_OK(cudaFreeAsync(other, NULL));
    }
}

/* A stream of a context that the program has made, other than the device's primary one. */
static void other_context(void) {
    int cuCtxCreate_v2(void **, unsigned, int);
    int cuCtxPopCurrent_v2(void **);
    int cuCtxDestroy_v2(void *);
    void *context = NULL, *popped = NULL, *block = NULL;
    stream_t stream;
    allocate(KIB);
    for (int round = 0; round < 8; round++) {
        CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
        CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
        CHECK_OK(cuCtxPopCurrent_v2(&popped));
        CHECK(popped == context);
        /* It may use and free memory of Genesis's; then its context ends. */
        CHECK_OK(cudaMallocAsync(&block, BYTES, NULL));
        CHECK_OK(cudaMemsetAsync(block, 1, BYTES, NULL));
        CHECK_OK(cudaStreamSynchronize(NULL));
        CHECK_OK(cudaMemsetAsync(block, 2, BYTES, stream));
        CHECK_OK(cudaFreeAsync(block, stream));
        if (round % 2) CHECK_OK(cuCtxDestroy_v2(context));
    }
    /* CUDA serves requests in its order. */
    CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    CHECK_OK(cuCtxPopCurrent_v2(&popped));
    uint64_t allocations = statistics(0).allocations;
    CHECK_OK(cudaMallocAsync(&block, BYTES, stream));
    EXPECT(allocations, statistics(0).allocations);
    EXPECT(1, simcuda_census("pool_blocks"));
    CHECK_OK(cudaFreeAsync(block, stream));
}

static sem_t has_waited_for, may_go_on;

/* In another thread, which is about to wait. */
static void pause_before_wait(void) {
    sem_post(&has_waited_for);
    usleep(2000);
}

static void *free_many(void *blocks) {
    CHECK_OK(cudaSetDevice(0));
    for (int index = 0; index < MANY; index++) CHECK_OK(cudaFree(((void **)blocks)[index]));
    return NULL;
}

/* A capture begins while another thread is about to begin a wait of ours. */
static void begin_beside_wait(void) {
    static void *blocks[MANY];
    stream_t stream;
    pthread_t thread;
    void *graph = NULL;
    CHECK_OK(sem_init(&has_waited_for, 0, 0));
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int index = 0; index < MANY; index++) blocks[index] = allocate(KIB);
    beyond_before_wait(pause_before_wait);
    CHECK_OK(pthread_create(&thread, NULL, free_many, blocks));
    CHECK_OK(sem_wait(&has_waited_for));
    CHECK_OK(cudaStreamBeginCapture(stream, CAPTURE_GLOBAL));
    CHECK_OK(pthread_join(thread, NULL));
    CHECK_OK(cudaStreamEndCapture(stream, &graph));
    CHECK(graph != NULL);
}

/* The work that is waited for needs the thread that begins a capture. */
static void wait_until_told(void) {
    sem_post(&has_waited_for);
    sem_wait(&may_go_on);
}

static void wait_that_needs_the_capture(void) {
    static void *blocks[MANY];
    stream_t stream;
    pthread_t thread;
    void *graph = NULL;
    struct timespec start, end;
    CHECK_OK(sem_init(&has_waited_for, 0, 0));
    CHECK_OK(sem_init(&may_go_on, 0, 0));
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int index = 0; index < MANY; index++) blocks[index] = allocate(KIB);
    beyond_before_wait(wait_until_told);
    CHECK_OK(pthread_create(&thread, NULL, free_many, blocks));
    CHECK_OK(sem_wait(&has_waited_for));
    clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK_OK(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(end.tv_sec - start.tv_sec <= 2);
    CHECK_OK(cudaStreamEndCapture(stream, &graph));
    CHECK_OK(sem_post(&may_go_on));
    CHECK_OK(pthread_join(thread, NULL));
}

/* Waits are made again after a capture whose stream was destroyed, and after an invalidated one. */
static void captures_that_end(void) {
    static void *blocks[MANY];
    stream_t stream;
    void *graph = NULL;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    CHECK_OK(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
    CHECK(cudaDeviceSynchronize() != OK);
    CHECK(cudaStreamEndCapture(stream, &graph) != OK);
    int64_t waits = simcuda_calls("cuCtxSynchronize");
    for (int index = 0; index < MANY; index++) blocks[index] = allocate(KIB);
    free_many(blocks);
    EXPECT(1, simcuda_calls("cuCtxSynchronize") - waits);
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
    CHECK_OK(cudaStreamDestroy(stream));
    waits = simcuda_calls("cuCtxSynchronize");
    for (int index = 0; index < MANY; index++) blocks[index] = allocate(KIB);
    free_many(blocks);
    CHECK(simcuda_calls("cuCtxSynchronize") - waits >= 1);
}

int main(int count, char **arguments) {
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"per_thread", per_thread}, {"made_and_destroyed", made_and_destroyed},
        {"other_context", other_context}, {"begin_beside_wait", begin_beside_wait},
        {"wait_that_needs_the_capture", wait_that_needs_the_capture},
        {"captures_that_end", captures_that_end},
    };
    EXPECT(2, count);
    CHECK_OK(cudaSetDevice(0));
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (!strcmp(arguments[1], cases[index].name)) cases[index].run();
    }
    check_violations();
    CHECK(simcuda_validate() == NULL);
    return 0;
}
