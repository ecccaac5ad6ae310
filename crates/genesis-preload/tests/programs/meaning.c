/*
 * Calls mean the same as without the preload library. The argument names the case.
 */
#include "preload.h"

#include <pthread.h>

static void *allocate(size_t bytes) {
    void *block = NULL;
    CHECK_OK(cudaMalloc(&block, bytes));
    return block;
}

/* When the current device was waited for. */
static uint64_t live_bytes(int device) {
    CHECK_OK(cudaDeviceSynchronize());
    return statistics(device).requested_bytes.current;
}

static void edges(void) {
    void *block = &block;
    /* The idiom that makes a context, before anything else. */
    CHECK_OK(cudaFree(NULL));
    CHECK(genesis_library() == NULL);
    CHECK_OK(cudaMalloc(&block, 0));
    CHECK(block == NULL);
    EXPECT(INVALID_VALUE, cudaMalloc(NULL, KIB));
    CHECK_OK(cudaMalloc(&block, 1));
    CHECK_OK(cudaFree(block));
    EXPECT(INVALID_VALUE, cudaFree(block));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK(cudaFree(block) != OK);
    CHECK(cudaFree((char *)allocate(2 * KIB) + KIB) != OK);
    CHECK(cudaFree(&block) != OK);
    EXPECT(2 * KIB, live_bytes(0));
}

static void last_error(void) {
    void *block = NULL;
    EXPECT(0, cudaGetLastError());
    EXPECT(OUT_OF_MEMORY, cudaMalloc(&block, SIZE_MAX));
    EXPECT(OUT_OF_MEMORY, cudaMalloc(&block, (size_t)1 << 62));
    CHECK(block == NULL);
    EXPECT(OUT_OF_MEMORY, cudaPeekAtLastError());
    EXPECT(OUT_OF_MEMORY, cudaGetLastError());
    EXPECT(0, cudaPeekAtLastError());
    EXPECT(0, cudaGetLastError());
    /* Of two the later one is the last. */
    CHECK_OK(simcuda_fail("cudaMemset", 1, 700, 1));
    EXPECT(OUT_OF_MEMORY, cudaMalloc(&block, SIZE_MAX));
    EXPECT(700, cudaMemset(allocate(KIB), 0, KIB));
    EXPECT(700, cudaGetLastError());
    CHECK_OK(simcuda_fail("cudaMemset", 1, 700, 1));
    EXPECT(700, cudaMemset(allocate(KIB), 0, KIB));
    EXPECT(OUT_OF_MEMORY, cudaMalloc(&block, SIZE_MAX));
    EXPECT(OUT_OF_MEMORY, cudaGetLastError());
    EXPECT(0, cudaGetLastError());
}

static void pitched(void) {
    void *block = NULL;
    size_t pitch = 0;
    struct { void *block; size_t pitch, width, height; } volume;
    struct extent { size_t width, height, depth; } extent = {1025, 10, 3};
    int cudaMalloc3D(void *volume, struct extent extent);
    CHECK_OK(cudaMallocPitch(&block, &pitch, 100, 7));
    EXPECT(512, pitch);
    EXPECT(7 * 512, live_bytes(0));
    CHECK_OK(cudaFree(block));
    CHECK_OK(cudaMalloc3D(&volume, extent));
    CHECK(volume.pitch == 1536 && volume.width == 1025 && volume.height == 10);
    EXPECT(1536 * 30, live_bytes(0));
    CHECK_OK(cudaFree(volume.block));
    struct extent vast = {SIZE_MAX / 2, 3, 5};
    EXPECT(OUT_OF_MEMORY, cudaMalloc3D(&volume, vast));
    EXPECT(OUT_OF_MEMORY, cudaMallocPitch(&block, &pitch, SIZE_MAX, 1));
    EXPECT(OUT_OF_MEMORY, cudaGetLastError());
    EXPECT(0, live_bytes(0));
}

static void memory_info(void) {
    size_t free_bytes, total_bytes, all_bytes;
    CHECK_OK(cudaMemGetInfo(&all_bytes, &total_bytes));
    CHECK(all_bytes == total_bytes && total_bytes == 80 * GIB);
    void *block = allocate(GIB);
    CHECK_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    CHECK(free_bytes == all_bytes - GIB);
    /* Freed blocks count as free although they wait, and so does cached memory. */
    CHECK_OK(cudaFree(block));
    CHECK_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(all_bytes, free_bytes);
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(all_bytes, free_bytes);
    EXPECT(OK, cudaMemGetInfo(&free_bytes, NULL));
}

/* Memory that the driver allocated because Genesis could not goes back to the driver. */
static void foreign(void) {
    void *blocks[4];
    CHECK_OK(cudaFree(NULL));
    CHECK_OK(simcuda_fail("cuStreamCreate", 1, UNKNOWN, 2));
    for (size_t index = 0; index < LENGTH(blocks); index++) blocks[index] = allocate(MIB);
    EXPECT(2 * MIB, live_bytes(0));
    int64_t allocations = simcuda_census("allocations");
    CHECK_OK(cudaFree(blocks[0]));
    CHECK_OK(cudaFree(blocks[1]));
    EXPECT(allocations - 2, simcuda_census("allocations"));
    CHECK_OK(cudaFree(blocks[2]));
    CHECK_OK(cudaFree(blocks[3]));
    EXPECT(0, live_bytes(0));
    CHECK_OK(cudaMallocHost(&blocks[0], KIB));
    CHECK(cudaFree(blocks[0]) != OK);
    CHECK_OK(cudaFreeHost(blocks[0]));
}

static void ipc(void) {
    char handle[64];
    void *first = allocate(100 * KIB), *second = allocate(100 * KIB);
    /* Only a block that begins where the driver's own allocation does has a handle. */
    EXPECT(NOT_SUPPORTED, cudaIpcGetMemHandle(handle, second));
    EXPECT(NOT_SUPPORTED, cudaGetLastError());
    fprintf(stderr, "%d\n", cudaIpcGetMemHandle(handle, first));
    fprintf(stderr, "%d\n", cudaIpcGetMemHandle(handle, (char *)second + 512));
}

static void *per_thread(void *block) {
    void *own = NULL;
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaMallocAsync_ptsz(&own, MIB, NULL));
    CHECK_OK(cudaFreeAsync_ptsz(*(void **)block, NULL));
    *(void **)block = own;
    return NULL;
}

static void stream_order(void) {
    void *block = NULL, *again = NULL, *pool = NULL;
    stream_t stream;
    pthread_t thread;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    CHECK_OK(cudaMallocAsync(&block, 3 * MIB, stream));
    CHECK_OK(cudaFreeAsync(block, stream));
    /* On its stream it is free at once. */
    CHECK_OK(cudaMallocAsync(&again, 3 * MIB, stream));
    CHECK(again == block);
    EXPECT(0, simcuda_census("pool_blocks"));
    CHECK_OK(cudaFree(again));
    EXPECT(INVALID_VALUE, cudaFreeAsync(again, stream));
    CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cudaMallocFromPoolAsync(&block, MIB, pool, stream));
    EXPECT(MIB, live_bytes(0));
    /* Another memory pool than the default one is left to CUDA. */
    CHECK(cudaMallocFromPoolAsync(&again, MIB, &pool, stream) != OK);
    EXPECT(MIB, live_bytes(0));
    CHECK_OK(cudaFreeAsync(block, NULL));
    CHECK_OK(cudaMallocAsync_ptsz(&block, MIB, NULL));
    CHECK_OK(pthread_create(&thread, NULL, per_thread, &block));
    CHECK_OK(pthread_join(thread, NULL));
    CHECK_OK(cudaFreeAsync(block, stream));
    EXPECT(OUT_OF_MEMORY, cudaMallocAsync(&block, SIZE_MAX, stream));
    EXPECT(OUT_OF_MEMORY, cudaGetLastError());
    CHECK_OK(cudaDeviceSynchronize());
    /* A block that waited for another stream becomes free by the next call. */
    CHECK_OK(cudaFree(allocate(KIB)));
    EXPECT(0, live_bytes(0));
}

static void devices(void) {
    void *blocks[2];
    stream_t stream;
    for (int device = 0; device < 2; device++) {
        CHECK_OK(cudaSetDevice(device));
        blocks[device] = allocate((size_t)(device + 1) * MIB);
        EXPECT((device + 1) * MIB, statistics(device).requested_bytes.current);
    }
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    /* Freed with the other device current: free when both were waited for. */
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaFree(blocks[1]));
    CHECK_OK(cudaFree(blocks[0]));
    EXPECT(MIB, live_bytes(0));
    EXPECT(2 * MIB, live_bytes(1));
    CHECK_OK(cudaSetDevice(1));
    EXPECT(0, live_bytes(1));
    EXPECT(0, live_bytes(0));
    CHECK_OK(cudaSetDevice(0));
    /* In the order of a stream of the other device. */
    CHECK_OK(cudaMallocAsync(&blocks[0], 3 * MIB, stream));
    EXPECT(3 * MIB, statistics(1).requested_bytes.current);
    CHECK_OK(cudaFreeAsync(blocks[0], stream));
    CHECK_OK(cudaSetDevice(1));
    EXPECT(0, live_bytes(1));
}

/* Devices use memory of others, allocated before access was enabled or after, as kernels would. */
static void peers(void) {
    struct { int place, device, flags; } access = {1, 0, 3};
    void *blocks[2], *pool;
    for (int device = 0; device < 2; device++) {
        CHECK_OK(cudaSetDevice(device));
        blocks[device] = allocate(MIB);
    }
    CHECK_OK(cudaDeviceEnablePeerAccess(0, 0));
    /* Access to the other device's memory pool is access to all of its memory. */
    CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 1));
    CHECK_OK(cudaMemPoolSetAccess(pool, &access, 1));
    for (int device = 0; device < 2; device++) {
        CHECK_OK(simcuda_touch(1 - device, NULL, blocks[device], MIB, 0));
        CHECK_OK(cudaSetDevice(device));
        CHECK_OK(simcuda_touch(1 - device, NULL, allocate(100 * MIB), 100 * MIB, 0));
    }
}

/* Arrays are CUDA's, and get memory that Genesis has cached; see beyond.c. */
static void passed(void) {
    void *array = NULL, *block = NULL;
    CHECK_OK(cudaFree(allocate(60 * GIB)));
    CHECK(simcuda_census("used_bytes") >= (int64_t)(60 * GIB));
    CHECK_OK(cudaMallocArray(&array, NULL, 3, 5, 7));
    EXPECT(3 * 5 + 7, (uintptr_t)array);
    CHECK(simcuda_census("used_bytes") < (int64_t)GIB);
    CHECK_OK(cudaMallocManaged(&block, KIB, 1));
    EXPECT(0, statistics(0).allocations - statistics(0).frees);
    CHECK_OK(cudaFree(block));
    CHECK_OK(cudaMallocHost(&block, KIB));
    CHECK_OK(cudaFreeHost(block));
}

/* A device that is reset is CUDA's from then on, and what was allocated before is gone. */
static void reset(void) {
    void *former = allocate(MIB), *waiting = allocate(MIB), *block = NULL;
    CHECK_OK(cudaFree(waiting));
    CHECK_OK(cudaDeviceReset());
    EXPECT(2, statistics(0).allocations);
    CHECK_OK(cudaMalloc(&block, MIB));
    CHECK_OK(cudaMallocAsync(&block, MIB, NULL));
    EXPECT(2, statistics(0).allocations);
    CHECK(cudaFree(former) != OK);
    CHECK(cudaFree(waiting) != OK);
    CHECK_OK(cudaFree(block));
    CHECK_OK(cudaDeviceSynchronize());
    EXPECT(0, statistics(0).frees);
}

/* The driver's own answer about an address counts. */
static void check_range(void *block, size_t offset, size_t bytes) {
    int cuMemGetAddressRange_v2(unsigned long long *, size_t *, unsigned long long);
    int cuPointerGetAttribute(void *, int, unsigned long long);
    unsigned long long start = 0, address = ADDRESS(block) + offset;
    size_t found = 0;
    CHECK_OK(cuMemGetAddressRange_v2(&start, &found, address));
    CHECK(start == ADDRESS(block) && found == bytes);
    start = found = 0;
    CHECK_OK(cuPointerGetAttribute(&start, 11, address));
    CHECK_OK(cuPointerGetAttribute(&found, 12, address));
    CHECK(start == ADDRESS(block) && found == bytes);
}

/* After a reset CUDA reuses addresses that Genesis knows as its own, live or free. */
static void addresses_again(void) {
    void (*use_again)(void *, size_t);
    *(void **)&use_again = dlsym(RTLD_DEFAULT, "beyond_use_again");
    char *live = allocate(MIB), *freed = allocate(MIB), *block = NULL;
    CHECK_OK(cudaFree(freed));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaDeviceReset());
    char *places[] = {live, live + 512 * KIB, freed, freed + 512};
    for (size_t index = 0; index < LENGTH(places); index++) {
        size_t bytes = 100 * KIB + index;
        use_again(places[index], bytes);
        CHECK_OK(cudaMalloc((void **)&block, bytes));
        CHECK(block == places[index]);
        check_range(block, 0, bytes);
        check_range(block, KIB, bytes);
        EXPECT(OK, cudaFree(block));
        CHECK(cudaFree(block) != OK);
    }
}

/* The same with a driver that really reuses addresses. */
static void reset_for_good(void) {
    enum { BLOCKS = 64, BYTES = 768 << 10 };
    static char *former[BLOCKS], *blocks[BLOCKS];
    stream_t stream;
    int found = 0;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int index = 0; index < BLOCKS; index++) former[index] = allocate(MIB);
    for (int index = 0; index < BLOCKS; index += 2) CHECK_OK(cudaFree(former[index]));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaFree(former[1]));
    CHECK_OK(cudaMallocAsync((void **)&blocks[0], 3 * MIB, stream));
    CHECK_OK(cudaDeviceReset());
    uint64_t allocations = statistics(0).allocations;
    for (int index = 0; index < BLOCKS; index++) {
        blocks[index] = allocate(BYTES);
        check_range(blocks[index], KIB, BYTES);
        CHECK_OK(cudaMemset(blocks[index], 1, BYTES));
        for (int other = 0; other < BLOCKS; other++) found += blocks[index] == former[other];
    }
    CHECK(found > 0);
    EXPECT(allocations, statistics(0).allocations);
    for (int index = 0; index < BLOCKS; index++) {
        CHECK_OK(cudaFree(blocks[index]));
        CHECK(cudaFree(blocks[index]) != OK);
    }
    for (int index = 0; index < BLOCKS; index++) CHECK(cudaFree(former[index]) != OK);
    EXPECT(0, simcuda_census("used_bytes"));
}

/* Without a named pool, memory in stream order is from the memory pool that the program has set. */
static void pools(void) {
    void *block = NULL, *pool = NULL;
    CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cudaMallocAsync(&block, MIB, NULL));
    EXPECT(1, statistics(0).allocations);
    CHECK_OK(cudaDeviceSetMemPool(0, &block));
    CHECK_OK(cudaMallocAsync(&block, MIB, NULL));
    EXPECT(1, statistics(0).allocations);
    EXPECT(1, simcuda_census("pool_blocks"));
    CHECK_OK(cudaFreeAsync(block, NULL));
    CHECK_OK(cudaDeviceSetMemPool(0, pool));
    CHECK_OK(cudaMallocAsync(&block, MIB, NULL));
    EXPECT(2, statistics(0).allocations);
}

/* A limit of Genesis's own holds; blocks that wait for a fence are used before a request fails. */
static void limit(void) {
    void *block = NULL;
    for (int round = 0; round < 20; round++) CHECK_OK(cudaFree(allocate(600 * MIB)));
    CHECK_OK(cudaFree(allocate(20 * MIB)));
    block = allocate(1000 * MIB);
    EXPECT(OUT_OF_MEMORY, cudaMalloc(&block, 100 * MIB));
    EXPECT(0, simcuda_calls("cuMemAlloc"));
}

/* With a limit of LIMIT bytes, set for HAMi, the device seems to have no more. */
static void outer_limit(void) {
    size_t limit = strtoull(getenv("LIMIT"), NULL, 10), free_bytes = 1, total_bytes = 1;
    CHECK_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    CHECK(free_bytes == limit && total_bytes == limit);
    CHECK_OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    CHECK(free_bytes == limit && total_bytes == limit);
    void *block = NULL;
    unsigned long long address = 0;
    EXPECT(OUT_OF_MEMORY, cudaMalloc(&block, limit + 2 * MIB));
    EXPECT(OUT_OF_MEMORY, cudaGetLastError());
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&address, limit + 2 * MIB));
    if (limit > 8 * MIB) {
        block = allocate(limit - 4 * MIB);
        CHECK_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
        CHECK(free_bytes == 4 * MIB && total_bytes == limit);
        CHECK_OK(cudaFree(block));
    }
    CHECK_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    CHECK(free_bytes == limit && total_bytes == limit);
}

/*
 * Each of many blocks is freed once: more than the library remembers of those it handed out, and in
 * another order.
 */
static void many(void) {
    enum { BLOCKS = 17011, STEP = 97 };
    static void *blocks[BLOCKS];
    stream_t stream;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int round = 0; round < 2; round++) {
        size_t requested = 0;
        for (int index = 0; index < BLOCKS; index++) {
            blocks[index] = allocate((size_t)index % 5000 + 1);
            requested += (size_t)index % 5000 + 1;
        }
        EXPECT(requested, live_bytes(0));
        for (int index = 0, next = 0; index < BLOCKS; index++, next = (next + STEP) % BLOCKS) {
            void *block = blocks[next];
            CHECK(cudaFree((char *)block + 1) != OK);
            CHECK_OK(index % 7 ? cudaFree(block) : cudaFreeAsync(block, stream));
            CHECK(cudaFree(block) != OK);
            CHECK(cudaFreeAsync(block, stream) != OK);
        }
        CHECK_OK(cudaDeviceSynchronize());
        CHECK_OK(cudaFree(allocate(KIB)));
        EXPECT(0, live_bytes(0));
    }
    CHECK_OK(cudaStreamDestroy(stream));
}

enum { RACED = 400, RACERS = 4 };
static void *raced[RACED];
static int freed_count;
static pthread_barrier_t start;

static void *race(void *argument) {
    CHECK_OK(cudaSetDevice(0));
    (void)argument;
    pthread_barrier_wait(&start);
    for (int index = 0; index < RACED; index++) {
        if (cudaFree(raced[index]) == OK) __atomic_fetch_add(&freed_count, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Of several threads that free the same block one succeeds; too few blocks wait for a fence. */
static void twice_at_once(void) {
    pthread_t threads[RACERS];
    for (int round = 0; round < 50; round++) {
        for (int index = 0; index < RACED; index++) raced[index] = allocate(KIB);
        freed_count = 0;
        CHECK_OK(pthread_barrier_init(&start, NULL, RACERS));
        for (int index = 0; index < RACERS; index++) {
            CHECK_OK(pthread_create(&threads[index], NULL, race, NULL));
        }
        for (int index = 0; index < RACERS; index++) CHECK_OK(pthread_join(threads[index], NULL));
        EXPECT(RACED, freed_count);
        EXPECT(0, live_bytes(0));
        CHECK_OK(pthread_barrier_destroy(&start));
    }
}

/* One block of three was never freed, and is live at the end. */
static void leaks(void) {
    void *first = allocate(KIB), *third = (allocate(2 * KIB), allocate(3 * KIB));
    CHECK_OK(cudaFree(first));
    CHECK_OK(cudaFree(third));
}

int main(int count, char **arguments) {
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"edges", edges}, {"last_error", last_error}, {"pitched", pitched},
        {"memory_info", memory_info}, {"foreign", foreign}, {"ipc", ipc},
        {"stream_order", stream_order}, {"devices", devices}, {"passed", passed},
        {"limit", limit}, {"outer_limit", outer_limit}, {"reset", reset}, {"addresses_again", addresses_again},
        {"reset_for_good", reset_for_good}, {"pools", pools},
        {"leaks", leaks}, {"peers", peers}, {"many", many}, {"twice_at_once", twice_at_once},
    };
    EXPECT(2, count);
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (!strcmp(arguments[1], cases[index].name)) cases[index].run();
    }
    check_violations();
    CHECK(simcuda_validate() == NULL);
    return 0;
}
