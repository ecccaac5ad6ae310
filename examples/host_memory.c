/* Host memory in C: a pinned pool, made ready in the background, whose blocks follow the streams
 * that copy from them. */
#include <genesis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

static void require(int holds)
{
    if (!holds) {
        fprintf(stderr, "%s\n", genesis_last_error_message_get());
        exit(1);
    }
}

int main(void)
{
    const int pinned = GENESIS_HOST_KIND_PINNED;
    const genesis_stream stream = NULL; /* a cudaStream_t */
    /* A thread locks the pages; the program goes on. */
    require(genesis_host_preallocate(pinned, 64 * MIB, 1) == GENESIS_STATUS_SUCCESS);
    require(genesis_host_memory_limit_set(pinned, 256 * MIB) == GENESIS_STATUS_SUCCESS);
    require(genesis_host_preallocate_wait() == GENESIS_STATUS_SUCCESS);
    for (int batch = 0; batch < 100; ++batch) {
        char *memory = genesis_host_malloc(5 * MIB, pinned);
        require(memory != NULL && genesis_host_is_pinned(memory));
        memset(memory, batch, 5 * MIB);
        /* … cudaMemcpyAsync from `memory` on the stream, which the host does not wait for … */
        require(genesis_host_record_stream(memory, stream) == GENESIS_STATUS_SUCCESS);
        genesis_host_free(memory); /* reused once the copy is complete */
    }
    genesis_stats stats = {.struct_size = sizeof stats};
    require(genesis_host_stats_get(pinned, &stats) == GENESIS_STATUS_SUCCESS);
    printf("%llu batches in %llu MiB\n", (unsigned long long)stats.allocations,
           (unsigned long long)(stats.reserved_bytes.peak / MIB));
    require(genesis_host_cache_empty(pinned) == GENESIS_STATUS_SUCCESS);
    return 0;
}
