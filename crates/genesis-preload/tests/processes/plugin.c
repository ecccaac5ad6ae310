/* A library that is linked against the runtime and loaded by loading.c. */
#include "cuda.h"

int plugin_use(void);

int plugin_use(void)
{
    void *blocks[2];
    for (int index = 0; index < 2; index++) {
        const int code = cudaMalloc(&blocks[index], MIB << index);
        if (code != CUDA_SUCCESS) {
            EXPECT(code, cudaGetLastError());
            return code;
        }
    }
    CHECK_OK(cudaFree(blocks[0]));
    return cudaFree(blocks[1]);
}
