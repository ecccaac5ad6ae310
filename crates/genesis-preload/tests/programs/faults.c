/*
 * A program that accepts every answer while calls of the driver fail (SIMCUDA_FAULTS). At the end
 * it frees what it holds, and then the driver has everything back.
 */
#include "preload.h"

enum { HELD = 24, ROUNDS = 300 };

/* A block, and the stream whose work uses it, if that has not been destroyed. */
static struct held { void *block; stream_t stream; int is_orphan; } held[HELD];
static stream_t streams[3];
static uint32_t state = 1;

static uint32_t draw(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* A refused free leaves the block with the program. */
static void release(struct held *one) {
    int is_ordered = draw(3) == 0 && !one->is_orphan;
    int status = is_ordered ? cudaFreeAsync(one->block, one->stream) : cudaFree(one->block);
    if (status == OK) one->block = NULL;
}

/* Replaces a stream, whose memory may still be held. */
static void make_again(uint32_t index) {
    stream_t stream = NULL;
    if (cudaStreamCreateWithFlags(&stream, NON_BLOCKING) != OK) return;
    for (int held_one = 0; held_one < HELD; held_one++) {
        if (held[held_one].stream == streams[index]) held[held_one].is_orphan = 1;
    }
    if (streams[index] != NULL) cudaStreamDestroy(streams[index]);
    streams[index] = stream;
}

static void round_of_work(void) {
    struct held *one = &held[draw(HELD)];
    stream_t stream = streams[draw(LENGTH(streams))];
    size_t bytes = draw(4) ? (size_t)draw(64 * 1024) + 8 : (size_t)draw(48) * MIB + 8, pitch, total;
    if (one->block != NULL) release(one);
    if (one->block != NULL) return;
    void *block = NULL;
    int status;
    switch (draw(3)) {
    case 0: status = cudaMalloc(&block, bytes); break;
    case 1: status = cudaMallocAsync(&block, bytes, stream); break;
    default: status = cudaMallocPitch(&block, &pitch, bytes / 8 + 1, 7); break;
    }
    if (status == OK) {
        CHECK(block != NULL);
        *one = (struct held){block, stream, 0};
        cudaMemsetAsync(block, 1, 8, stream);
    }
    if (draw(16) == 0) cudaDeviceSynchronize();
    if (draw(16) == 0) make_again(1 + draw(2));
    if (draw(16) == 0) cudaMemGetInfo(&bytes, &total);
    /* CUDA's own. */
    if (draw(16) == 0) cudaMalloc(&block, 0);
    cudaGetLastError();
}

int main(void) {
    /* Another device is in use, which this library has not seen. */
    if (cudaSetDevice(1) == OK) cudaFree(NULL);
    cudaSetDevice(0);
    cudaGetLastError();
    cudaFree(NULL);
    cudaStreamCreateWithFlags(&streams[1], NON_BLOCKING);
    cudaStreamCreateWithFlags(&streams[2], NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) round_of_work();
    CHECK_OK(simcuda_faults_clear());
    /* It goes on working. */
    for (int round = 0; round < ROUNDS; round++) round_of_work();
    CHECK_OK(cudaDeviceSynchronize());
    for (int index = 0; index < HELD; index++) {
        if (held[index].block != NULL) CHECK_OK(cudaFree(held[index].block));
    }
    CHECK_OK(cudaDeviceSynchronize());
    /* What was freed is given back behind a wait for each device in use. */
    if (cudaSetDevice(1) == OK) CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaSetDevice(0));
    /* CUDA gives back what it served itself. */
    void *pool = NULL;
    CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cudaMemPoolTrimTo(pool, 0));
    if (genesis_library() != NULL) {
        /* If Genesis could not start, CUDA has served everything. */
        genesis_status (*empty)(int);
        *(void **)&empty = genesis_function("genesis_cache_empty");
        if (empty(0) == GENESIS_STATUS_SUCCESS) EXPECT(0, statistics(0).allocated_bytes.current);
    }
    EXPECT(0, simcuda_census("used_bytes"));
    EXPECT(0, simcuda_census("allocations"));
    check_violations();
    CHECK(simcuda_validate() == NULL);
    return 0;
}
