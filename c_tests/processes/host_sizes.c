/*
 * What the options of a host heap make of requests, for tests/host_memory.rs: a kind of host memory
 * and sizes are the arguments.
 *
 * It prints the bytes of a block of each size, then the bytes held after these blocks are freed
 * and a block of another size is allocated.
 */
#include "../check.h"

enum { MOST_BLOCKS = 16 };

static genesis_stats host_stats_of(int kind)
{
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_host_stats_get(kind, &stats));
    return stats;
}

int main(int count, char **arguments)
{
    void *blocks[MOST_BLOCKS];
    uint64_t allocated_bytes = 0;
    CHECK(count >= 3 && count - 2 <= MOST_BLOCKS);
    const int kind = (int)strtol(arguments[1], NULL, 10);
    for (int index = 2; index < count; index++) {
        blocks[index - 2] = genesis_host_malloc((size_t)strtoull(arguments[index], NULL, 10), kind);
        CHECK(blocks[index - 2] != NULL);
        const uint64_t now = host_stats_of(kind).allocated_bytes.current;
        printf("%llu\n", (unsigned long long)(now - allocated_bytes));
        allocated_bytes = now;
    }
    for (int index = 2; index < count; index++) {
        genesis_host_free(blocks[index - 2]);
    }
    void *other = genesis_host_malloc(64 * MIB, kind);
    CHECK(other != NULL);
    printf("%llu\n", (unsigned long long)host_stats_of(kind).reserved_bytes.current);
    genesis_host_free(other);
    return 0;
}
