/*
 * When freed memory is used again: streams stand still (SIMCUDA_PROGRESS=manual), and simgpu's race
 * detector sees every use. The argument names the case.
 */
#include "preload.h"

enum { BYTES = 4 << 20, MANY = 700 };

static stream_t one, two;

static void *allocate(size_t bytes) {
    void *block = NULL;
    CHECK_OK(cudaMalloc(&block, bytes));
    return block;
}

/* A block that work queued on stream `one` uses, freed. */
static void *freed_under_work(void) {
    void *block = allocate(BYTES);
    CHECK_OK(cudaMemsetAsync(block, 1, BYTES, one));
    CHECK_OK(cudaFree(block));
    return block;
}

/* A block is freed while one stream uses it, and memory is used on another. */
static void shadow(void) {
    for (int round = 0; round < 8; round++) {
        freed_under_work();
        void *block = allocate(BYTES);
        CHECK_OK(cudaMemsetAsync(block, 2, BYTES, two));
    }
}

/* The same, on a device that has memory for one block only. */
static void short_of_memory(void) {
    CHECK_OK(simcuda_limit(0, 2 * BYTES));
    void *former = freed_under_work();
    int64_t waits = simcuda_calls("cuCtxSynchronize");
    void *block = allocate(2 * BYTES - MIB);
    CHECK(simcuda_calls("cuCtxSynchronize") > waits || block != former);
    CHECK_OK(cudaMemsetAsync(block, 2, BYTES, two));
}

/* Many blocks are freed: after one wait they are free again. */
static void many(void) {
    static void *blocks[MANY];
    for (int index = 0; index < MANY; index++) blocks[index] = allocate(KIB);
    CHECK_OK(cudaMemsetAsync(blocks[0], 1, KIB, one));
    int64_t waits = simcuda_calls("cuCtxSynchronize");
    for (int index = 0; index < MANY; index++) CHECK_OK(cudaFree(blocks[index]));
    EXPECT(1, simcuda_calls("cuCtxSynchronize") - waits);
    uint64_t live = statistics(0).requested_bytes.current;
    CHECK(live > 0 && live < MANY * KIB / 2);
    for (int index = 0; index < MANY; index++) {
        CHECK_OK(cudaMemsetAsync(allocate(KIB), 2, KIB, two));
    }
}

/* The bytes put aside are few compared with the live ones. */
static void bytes(void) {
    int64_t waits = simcuda_calls("cuCtxSynchronize");
    for (int index = 0; index < 32; index++) CHECK_OK(cudaFree(allocate(64 * MIB)));
    CHECK(simcuda_calls("cuCtxSynchronize") - waits >= 16);
    CHECK(statistics(0).reserved_bytes.peak <= 192 * MIB);
    /* With 4 GiB live, half a GiB may wait. */
    allocate(4 * GIB);
    CHECK_OK(cudaFree(allocate(64 * MIB)));
    CHECK_OK(cudaDeviceSynchronize());
    waits = simcuda_calls("cuCtxSynchronize");
    for (int index = 0; index < 7; index++) CHECK_OK(cudaFree(allocate(64 * MIB)));
    EXPECT(0, simcuda_calls("cuCtxSynchronize") - waits);
}

/* The program itself waits: no wait of ours is needed. */
static void own_wait(void) {
    void *former = freed_under_work();
    EXPECT(BYTES, statistics(0).requested_bytes.current);
    CHECK_OK(cudaDeviceSynchronize());
    EXPECT(0, statistics(0).requested_bytes.current);
    void *block = allocate(BYTES);
    CHECK(block == former);
    CHECK_OK(cudaMemsetAsync(block, 2, BYTES, two));
}

/* While a stream is captured nothing is waited for, and the capture succeeds. */
static void capture(void) {
    static void *blocks[MANY];
    void *graph = NULL;
    for (int index = 0; index < MANY; index++) blocks[index] = allocate(KIB);
    void *used = allocate(BYTES);
    CHECK_OK(cudaStreamBeginCapture(one, CAPTURE_GLOBAL));
    CHECK_OK(cudaMemsetAsync(used, 1, BYTES, one));
    int64_t waits = simcuda_calls("cuCtxSynchronize");
    for (int index = 0; index < MANY; index++) CHECK_OK(cudaFree(blocks[index]));
    allocate(KIB);
    /* CUDA answers requests in the capturing stream's order. */
    void *node = NULL;
    CHECK(cudaMallocAsync(&node, KIB, one) != OK);
    EXPECT(0, simcuda_calls("cuCtxSynchronize") - waits);
    EXPECT(NOT_SUPPORTED, cudaGetLastError());
    CHECK_OK(cudaStreamEndCapture(one, &graph));
    CHECK(graph != NULL);
    CHECK_OK(cudaFree(allocate(KIB)));
    EXPECT(1, simcuda_calls("cuCtxSynchronize") - waits);
    EXPECT(BYTES + KIB, statistics(0).requested_bytes.current);
}

/* Memory freed in one stream's order goes to cudaMalloc, so any stream may use it. */
static void stream_order(void) {
    /* So much is live that no fence comes before much more is freed. */
    void *block = allocate(40 * GIB);
    for (int round = 0; round < 8; round++) {
        stream_t stream = round & 1 ? one : NULL;
        CHECK_OK(cudaMallocAsync(&block, 4 * GIB, stream));
        CHECK_OK(cudaMemsetAsync(block, 1, 4 * GIB, stream));
        CHECK_OK(cudaFreeAsync(block, stream));
        /* Another lane misses what the stream holds; the next call that names it makes a fence. */
        void *other = allocate(3 * GIB);
        CHECK_OK(cudaMallocAsync(&block, KIB, stream));
        CHECK_OK(cudaFreeAsync(block, stream));
        block = allocate(3 * GIB);
        CHECK_OK(cudaMemsetAsync(block, 2, 3 * GIB, two));
        CHECK_OK(cudaFree(block));
        CHECK_OK(cudaFree(other));
    }
    const char *strategy = getenv("GENESIS_POOL_TYPE");
    CHECK(strcmp(strategy ? strategy : "", "Elastic") || simcuda_calls("cuStreamWaitEvent") > 0);
    /* The opposite: freed by cudaFreeAsync behind another stream's work. */
    void *former = NULL;
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaMallocAsync(&former, KIB, one));
    CHECK_OK(cudaMemsetAsync(former, 1, KIB, one));
    CHECK_OK(cudaStreamSynchronize(one));
    CHECK_OK(cudaMemsetAsync(former, 2, KIB, two));
    CHECK_OK(cudaFreeAsync(former, two));
    CHECK_OK(cudaMallocAsync(&block, KIB, one));
    CHECK_OK(cudaMemsetAsync(block, 3, KIB, one));
}

int main(int count, char **arguments) {
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"shadow", shadow}, {"short_of_memory", short_of_memory}, {"many", many},
        {"bytes", bytes}, {"own_wait", own_wait}, {"capture", capture},
        {"stream_order", stream_order},
    };
    EXPECT(2, count);
    CHECK_OK(cudaStreamCreateWithFlags(&one, NON_BLOCKING));
    CHECK_OK(cudaStreamCreateWithFlags(&two, NON_BLOCKING));
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (!strcmp(arguments[1], cases[index].name)) cases[index].run();
    }
    check_violations();
    CHECK(simcuda_validate() == NULL);
    return 0;
}
