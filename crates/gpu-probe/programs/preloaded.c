/* A program of CUDA's that does not know of Genesis, to be run under the preload. nvcc links the
 * runtime into it, so its calls reach the preload through the driver alone.
 *
 * Prints an array of checks as JSON, the time of a cached pair of calls among them. */

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BYTES ((size_t)1 << 20)
enum { ROUNDS = 101, PAIRS = 1000, BLOCKS = 64 };

static int printed;

static void check(const char *name, int passed, const char *detail)
{
    printf("%s{\"name\": \"%s, preloaded\", \"passed\": %s, \"detail\": \"%s\"}",
           printed++ ? ", " : "[", name, passed ? "true" : "false", detail);
}

/* Blocks of many sizes, each filled with a number of its own and read back. */
static void keep_bytes(void)
{
    static unsigned char host[BLOCKS * 4096];
    unsigned char *blocks[BLOCKS];
    int wrong = 0;
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = (size_t)(i + 1) * 4096;
        if (cudaMalloc((void **)&blocks[i], bytes) || cudaMemset(blocks[i], i + 1, bytes))
            wrong++;
    }
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = (size_t)(i + 1) * 4096;
        wrong += cudaMemcpy(host, blocks[i], bytes, cudaMemcpyDeviceToHost) != cudaSuccess;
        for (size_t byte = 0; byte < bytes; byte++)
            wrong += host[byte] != i + 1;
        wrong += cudaFree(blocks[i]) != cudaSuccess;
    }
    check("blocks keep their bytes", wrong == 0, "");
}

static int ascending(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

/* The median of many rounds. */
static void time_pairs(void)
{
    static double rounds[ROUNDS];
    char detail[64];
    int failed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int pair = 0; pair < PAIRS; pair++) {
            void *block;
            failed += cudaMalloc(&block, BYTES) != cudaSuccess;
            failed += cudaFree(block) != cudaSuccess;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        rounds[round] = ((double)(end.tv_sec - begin.tv_sec) * 1e9 +
                         (double)(end.tv_nsec - begin.tv_nsec)) / PAIRS;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, ascending);
    snprintf(detail, sizeof detail, "%.0f ns", rounds[ROUNDS / 2]);
    check("a pair of cudaMalloc and cudaFree", !failed, detail);
}

int main(void)
{
    void *block = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    cudaError_t refused;
    keep_bytes();
    time_pairs();
    check("the memory is known", cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess, "");
    refused = cudaMalloc(&block, total_bytes);
    check("more than there is", refused == cudaErrorMemoryAllocation, cudaGetErrorName(refused));
    cudaGetLastError();
    check("the next request is served", cudaMalloc(&block, BYTES) == cudaSuccess, "");
    printf("]\n");
    return 0;
}
