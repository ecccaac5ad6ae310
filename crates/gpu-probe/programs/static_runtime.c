/* A program with CUDA's runtime linked into it, as nvcc does by default, that uses memory of
 * Genesis. Genesis speaks to the driver alone; this program's runtime is its own copy, which
 * nothing outside can see. Both must agree on the primary context, on streams and on memory.
 *
 * Prints an array of checks as JSON. Needs no kernel, so any C compiler will do. */

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "genesis.h"

#define BYTES ((size_t)8 << 20)

static int printed;

static void check(const char *name, int passed, const char *detail)
{
    printf("%s{\"name\": \"%s\", \"passed\": %s, \"detail\": \"%s\"}", printed++ ? ", " : "[", name,
           passed ? "true" : "false", detail);
}

static void check_code(const char *name, cudaError_t code)
{
    check(name, code == cudaSuccess, cudaGetErrorName(code));
}

/* Fills a block on a stream of this runtime, copies it back, and checks every byte. */
static void use_block(cudaStream_t stream)
{
    unsigned char *host = malloc(BYTES);
    unsigned char *block = genesis_malloc(BYTES, 0, (genesis_stream)stream);
    check("a block of Genesis", block != NULL, block ? "" : "NULL");
    if (block == NULL || host == NULL)
        return;
    check_code("filled by the runtime", cudaMemsetAsync(block, 0x5a, BYTES, stream));
    check_code("copied by the runtime",
               cudaMemcpyAsync(host, block, BYTES, cudaMemcpyDeviceToHost, stream));
    check_code("waited for by the runtime", cudaStreamSynchronize(stream));
    size_t wrong = 0;
    for (size_t index = 0; index < BYTES; index++)
        wrong += host[index] != 0x5a;
    check("its bytes are the ones written", wrong == 0, "");
    struct cudaPointerAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    cudaError_t code = cudaPointerGetAttributes(&attributes, block);
    int known = code == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
    check("known to the runtime as memory of device 0", known && attributes.device == 0,
          cudaGetErrorName(code));
    genesis_free(block, 0, (genesis_stream)stream);
    void *again = genesis_malloc(BYTES, 0, (genesis_stream)stream);
    check("served again from the cache", again == (void *)block, "");
    genesis_free(again, 0, (genesis_stream)stream);
    free(host);
}

/* A request that cannot be served returns NULL, and leaves no error behind in the runtime. */
static void run_short(cudaStream_t stream)
{
    void *block = genesis_malloc((size_t)1 << 46, 0, (genesis_stream)stream);
    check("more than there is: NULL", block == NULL, "");
    check_code("no error is left behind", cudaPeekAtLastError());
    block = genesis_malloc(4096, 0, (genesis_stream)stream);
    check("the next small request is served", block != NULL, "");
    genesis_free(block, 0, (genesis_stream)stream);
}

int main(void)
{
    cudaStream_t stream;
    cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    check_code("a stream of the runtime", code);
    if (code == cudaSuccess) {
        use_block(stream);
        run_short(stream);
        check_code("the stream is destroyed", cudaStreamDestroy(stream));
        check("the cache is given back", genesis_cache_empty(0) == GENESIS_STATUS_SUCCESS, "");
    }
    printf("]\n");
    return 0;
}
