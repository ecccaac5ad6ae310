/*
 * Two devices in one process: streams stand still (SIMCUDA_PROGRESS=manual), and simgpu's race
 * detector sees every use. The argument names the case.
 */
#include "preload.h"

enum { BYTES = 4 << 20, SMALL = 64 << 10, MANY = 5000 };

/* A stream of each device. */
static stream_t streams[2];

static void *allocate(size_t bytes) {
    void *block = NULL;
    CHECK_OK(cudaMalloc(&block, bytes));
    return block;
}

static uint64_t live_bytes(int device) { return statistics(device).requested_bytes.current; }

/* Work of the device on its stream. */
static void use(int device, void *block, size_t bytes) {
    CHECK_OK(simcuda_touch(device, streams[device], block, bytes, 1));
}

/* Both devices may use the memory of both. */
static void enable_peers(void) {
    for (int device = 0; device < 2; device++) {
        CHECK_OK(cudaSetDevice(device));
        CHECK_OK(cudaDeviceEnablePeerAccess(1 - device, 0));
    }
    CHECK_OK(cudaSetDevice(0));
}

static void wait_for(int device) {
    CHECK_OK(cudaSetDevice(device));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaSetDevice(0));
}

/* In the order of a stream of a device that is not used yet. */
static void elsewhere(void) {
    void *block = NULL;
    CHECK_OK(cudaFree(NULL));
    for (int round = 0; round < 4; round++) {
        CHECK_OK(cudaMallocAsync(&block, BYTES, streams[1]));
        EXPECT(0, live_bytes(0));
        EXPECT(BYTES, live_bytes(1));
        use(1, block, BYTES);
        CHECK_OK(cudaFreeAsync(block, streams[1]));
    }
    EXPECT(0, live_bytes(1));
    allocate(SMALL);
    EXPECT(SMALL, live_bytes(0));
    CHECK_OK(cudaMallocAsync(&block, BYTES, streams[1]));
    EXPECT(BYTES, live_bytes(1));
}

/* A block is freed while a peer reads it: the program does not wait for the peer. */
static void peer_reads(void) {
    enable_peers();
    void *block = allocate(BYTES);
    use(0, block, BYTES);
    CHECK_OK(cudaStreamSynchronize(streams[0]));
    CHECK_OK(simcuda_touch(1, streams[1], block, BYTES, 0));
    CHECK_OK(cudaFree(block));
    wait_for(0);
    EXPECT(BYTES, live_bytes(0));
    use(0, allocate(BYTES), BYTES);
    wait_for(1);
    EXPECT(BYTES, live_bytes(0));
    /* In the other order, and with a wait for each that came too early. */
    block = allocate(BYTES);
    wait_for(1);
    CHECK_OK(cudaFree(block));
    wait_for(1);
    EXPECT(2 * BYTES, live_bytes(0));
    wait_for(0);
    EXPECT(BYTES, live_bytes(0));
}

/* Fences of this library also wait for a peer, however many blocks there are, of whatever size. */
static void peer_fences(void) {
    enable_peers();
    for (int round = 0; round < MANY; round++) {
        void *block = allocate(SMALL);
        use(0, block, SMALL);
        CHECK_OK(cudaStreamSynchronize(streams[0]));
        if (round % 16 == 0) CHECK_OK(simcuda_touch(1, streams[1], block, SMALL, 0));
        CHECK_OK(cudaFree(block));
    }
    CHECK(live_bytes(0) < (uint64_t)MANY * SMALL / 2);
    for (int round = 0; round < 8; round++) {
        void *block = allocate(GIB);
        use(0, block, GIB);
        CHECK_OK(cudaStreamSynchronize(streams[0]));
        CHECK_OK(simcuda_touch(1, streams[1], block, GIB, 0));
        CHECK_OK(cudaFree(block));
        CHECK(live_bytes(0) <= (uint64_t)MANY * SMALL + GIB);
    }
}

/* Memory that only a wait for a peer makes free. */
static void peer_shortage(void) {
    enable_peers();
    CHECK_OK(simcuda_limit(0, 64 * MIB));
    for (int round = 0; round < 4; round++) {
        void *block = allocate(40 * MIB);
        use(0, block, 40 * MIB);
        CHECK_OK(cudaStreamSynchronize(streams[0]));
        CHECK_OK(simcuda_touch(1, streams[1], block, 40 * MIB, 1));
        CHECK_OK(cudaFree(block));
    }
}

/* A thread for each device: the fences of one serve the other. */
static void in_turns(void) {
    int64_t waits = simcuda_calls("cuCtxSynchronize");
    for (int device = 0; device < 2; device++) {
        CHECK_OK(cudaSetDevice(device));
        allocate(KIB);
    }
    for (int round = 0; round < MANY; round++) {
        for (int device = 0; device < 2; device++) {
            CHECK_OK(cudaSetDevice(device));
            CHECK_OK(cudaFree(allocate(KIB)));
        }
    }
    /* One for 512 blocks on each device. */
    CHECK(simcuda_calls("cuCtxSynchronize") - waits <= 2 * (MANY / 512 + 1));
}

/* Blocks are freed while the other device is current, and in the order of its streams. */
static void from_the_other(void) {
    enable_peers();
    void *block = NULL;
    for (int round = 0; round < 8; round++) {
        CHECK_OK(cudaMallocAsync(&block, BYTES, streams[0]));
        use(0, block, BYTES);
        CHECK_OK(cudaStreamSynchronize(streams[0]));
        CHECK_OK(simcuda_touch(1, streams[1], block, BYTES, 0));
        CHECK_OK(cudaSetDevice(1));
        CHECK_OK(cudaFreeAsync(block, streams[1]));
        CHECK_OK(cudaMallocAsync(&block, BYTES, streams[0]));
        use(0, block, BYTES);
        CHECK_OK(cudaFree(block));
        CHECK_OK(cudaSetDevice(round % 2));
    }
}

/* The default streams of two devices have one handle and are two streams. */
static void default_streams(void) {
    enable_peers();
    void *block = NULL;
    for (int round = 0; round < 8; round++) {
        CHECK_OK(cudaSetDevice(0));
        CHECK_OK(cudaMallocAsync(&block, BYTES, NULL));
        CHECK_OK(simcuda_touch(0, NULL, block, BYTES, 1));
        CHECK_OK(cudaStreamSynchronize(NULL));
        CHECK_OK(cudaSetDevice(1));
        CHECK_OK(simcuda_touch(1, NULL, block, BYTES, 0));
        CHECK_OK(cudaFreeAsync(block, NULL));
    }
}

/* One device is reset, and what is free on the other stays Genesis's. */
static void reset(void) {
    void *former = allocate(MIB), *cached = allocate(MIB), *block = NULL;
    CHECK_OK(cudaFree(cached));
    wait_for(0);
    CHECK_OK(cudaSetDevice(1));
    void *other = allocate(MIB), *free_there = allocate(MIB);
    CHECK_OK(cudaFree(free_there));
    wait_for(1);
    wait_for(0);
    CHECK_OK(cudaDeviceReset());
    beyond_use_again(cached, MIB);
    EXPECT(OK, cudaMalloc(&block, MIB));
    CHECK(block == cached);
    EXPECT(OK, cudaFree(block));
    CHECK(cudaFree(former) != OK);
    CHECK_OK(cudaSetDevice(1));
    EXPECT(INVALID_VALUE, cudaFree(free_there));
    CHECK_OK(cudaFree(other));
    EXPECT(INVALID_VALUE, cudaFree(other));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaFree(allocate(MIB)));
}

int main(int count, char **arguments) {
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"elsewhere", elsewhere}, {"peer_reads", peer_reads}, {"peer_fences", peer_fences},
        {"peer_shortage", peer_shortage}, {"in_turns", in_turns},
        {"from_the_other", from_the_other}, {"default_streams", default_streams},
        {"reset", reset},
    };
    EXPECT(2, count);
    for (int device = 1; device >= 0; device--) {
        CHECK_OK(cudaSetDevice(device));
        CHECK_OK(cudaStreamCreateWithFlags(&streams[device], NON_BLOCKING));
    }
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (!strcmp(arguments[1], cases[index].name)) cases[index].run();
    }
    check_violations();
    CHECK(simcuda_validate() == NULL);
    return 0;
}
