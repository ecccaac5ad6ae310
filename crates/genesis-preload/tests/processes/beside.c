/*
 * A program with two interposers: Genesis's and interposer.c's. The argument names the first one.
 * It finds the runtime's functions as it was linked, and by dlsym.
 */
#include "cuda.h"

enum { ROUNDS = 100 };

int main(int count, char **arguments)
{
    int (*allocate)(void **block, size_t bytes);
    int (*release)(void *block);
    int (*interposed)(void);
    void *runtime = dlopen("libcudart.so.12", RTLD_NOW);
    CHECK(count == 2 && runtime != NULL);
    *(void **)&allocate = dlsym(runtime, "cudaMalloc");
    *(void **)&release = dlsym(runtime, "cudaFree");
    *(void **)&interposed = dlsym(RTLD_DEFAULT, "interposer_count");
    CHECK(allocate != NULL && release != NULL && interposed != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        void *blocks[2];
        CHECK_OK(cudaMalloc(&blocks[0], MIB));
        CHECK_OK(allocate(&blocks[1], MIB));
        CHECK_OK(cudaFree(blocks[0]));
        CHECK_OK(release(blocks[1]));
    }
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_SERVED(2LL * ROUNDS);
    if (strcmp(arguments[1], "other_first") == 0) {
        /* It sees what the program calls. */
        CHECK(interposed() >= 2 * ROUNDS);
    } else {
        /* It sees the calls that Genesis leaves to CUDA: next to none here. */
        CHECK(!is_on() || interposed() < ROUNDS);
    }
    return 0;
}
