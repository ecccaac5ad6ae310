/* The runtime, by the symbols that a preloaded library offers everybody, and faults:
   SIMCUDA_FAULTS=cuMemAlloc:2:2,cudaMemset:1:700:2 with 80 GiB and addresses only. */
#include "simcuda.h"

int main(void) {
    void *first = NULL, *second, *function;
    size_t free_bytes, total_bytes;
    int value;
    library = dlopen(NULL, RTLD_NOW);
    EXPECT(0, CALL(cudaGetLastError));
    OK(cudaGetDevice, &value);
    EXPECT(0, value);
    OK(cudaMalloc, &first, (size_t)60 << 30);
    EXPECT(OUT_OF_MEMORY, CALL(cudaMalloc, &second, (size_t)1 << 20));
    EXPECT(OUT_OF_MEMORY, CALL(cudaPeekAtLastError));
    OK(cudaMemGetInfo, &free_bytes, &total_bytes);
    EXPECT((size_t)20 << 30, free_bytes);
    EXPECT(OUT_OF_MEMORY, CALL(cudaGetLastError));
    EXPECT(0, CALL(cudaGetLastError));
    EXPECT(700, CALL(cudaMemset, first, 0, (size_t)512));
    EXPECT(700, CALL(cudaMemset, first, 0, (size_t)512));
    OK(cudaMemset, first, 0, (size_t)512);
    EXPECT(OUT_OF_MEMORY, CALL(cudaMalloc, &second, (size_t)70 << 30));
    OK(cudaFree, first);
    OK(cudaMalloc, &second, (size_t)70 << 30);
    EXPECT((int64_t)70 << 30, LONG(simcuda_peak_bytes, 0));
    OK(cudaFree, second);
    OK(cudaFree, NULL);
    OK(cudaMalloc, &first, (size_t)0);
    EXPECT(0, first);
    CALL(cudaGetLastError);
    char in[64];
    memset(in, 1, sizeof in);
    OK(cudaMalloc, &first, (size_t)64);
    OK(cudaMemcpy, in, first, sizeof in, 2);
    EXPECT(0, in[0] | in[63]);
    EXPECT(INVALID_VALUE, CALL(cudaMemcpy, first, first, sizeof in, 1));
    OK(cudaFree, first);
    OK(cudaGetDriverEntryPointByVersion, "cuMemCreate", &function, 12000u, (uint64_t)0, &value);
    EXPECT(0, value);
    EXPECT(1, function != NULL);
    EXPECT(NOT_SUPPORTED, CALL(cudaCreateTextureObject, &first, NULL, NULL, NULL));
    return 0;
}
