/* An array larger than the device, worked through in parts, in C (GENESIS_MANAGED). */
#include <genesis.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int holds)
{
    if (!holds) {
        fprintf(stderr, "%s\n", genesis_last_error_message_get());
        exit(1);
    }
}

int main(void)
{
    genesis_stream stream = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    require(genesis_memory_info_get(0, &free_bytes, &total_bytes) == GENESIS_STATUS_SUCCESS);
    const size_t parts = 8, part_bytes = total_bytes / 4;
    char *array = genesis_malloc(parts * part_bytes, 0, stream);
    require(array != NULL);
    for (size_t part = 0; part < parts; ++part) {
        /* The part comes in one go, and the one before makes room. */
        require(genesis_managed_prefetch(array + part * part_bytes, part_bytes, 0, stream) ==
                GENESIS_STATUS_SUCCESS);
        /* … kernels on the stream … */
        require(genesis_managed_prefetch(array + part * part_bytes, part_bytes, -1, stream) ==
                GENESIS_STATUS_SUCCESS);
    }
    genesis_stats stats = {.struct_size = sizeof stats};
    require(genesis_stats_get(0, &stats) == GENESIS_STATUS_SUCCESS);
    printf("%llu MiB beyond the device\n",
           (unsigned long long)(stats.oversubscribed_bytes >> 20));
    genesis_free(array, 0, stream);
    return 0;
}
