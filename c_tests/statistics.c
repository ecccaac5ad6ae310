/* Statistics: what is counted, how much of the struct is written, the largest blocks. */
#include "check.h"

/* As many bytes are written as the caller says its struct has, and no more than there are. */
static void struct_sizes(void)
{
    unsigned char room[sizeof(genesis_stats) + 64];
    const size_t least = sizeof(size_t) + sizeof(genesis_gauge);
    for (size_t struct_size = 0; struct_size <= sizeof room; struct_size++) {
        memset(room, 0xaa, sizeof room);
        memcpy(room, &struct_size, sizeof struct_size);
        const genesis_status status = genesis_stats_get(0, (genesis_stats *)(void *)room);
        const int is_written = struct_size >= least;
        CHECK(status == (is_written ? GENESIS_STATUS_SUCCESS : GENESIS_STATUS_INVALID_ARGUMENT));
        size_t kept_size;
        memcpy(&kept_size, room, sizeof kept_size);
        CHECK(kept_size == struct_size);
        size_t end = is_written ? struct_size : sizeof(size_t);
        end = end < sizeof(genesis_stats) ? end : sizeof(genesis_stats);
        CHECK(is_filled(room + end, sizeof room - end, 0xaa));
        uint64_t requested_bytes;
        memcpy(&requested_bytes, room + offsetof(genesis_stats, requested_bytes.current),
               sizeof requested_bytes);
        CHECK(!is_written || requested_bytes == stats_of(0).requested_bytes.current);
    }
}

static void check_consistent(const genesis_stats *stats)
{
    CHECK(stats->requested_bytes.current <= stats->allocated_bytes.current);
    CHECK(stats->allocated_bytes.current <= stats->active_bytes.current);
    CHECK(stats->active_bytes.current <= stats->reserved_bytes.current);
    CHECK(stats->inactive_bytes.current ==
          stats->reserved_bytes.current - stats->active_bytes.current);
    const genesis_gauge gauges[] = {stats->requested_bytes, stats->allocated_bytes,
                                    stats->reserved_bytes, stats->active_bytes,
                                    stats->inactive_bytes};
    for (size_t index = 0; index < LENGTH(gauges); index++) {
        CHECK(gauges[index].current <= gauges[index].peak);
    }
    CHECK(stats->hits + stats->misses == stats->allocations);
    CHECK(stats->frees <= stats->allocations);
    CHECK(stats->driver_memory_calls <= stats->driver_calls);
    CHECK(stats->largest_free_bytes <= stats->free_bytes);
    CHECK(stats->free_bytes == stats->inactive_bytes.current);
    CHECK(stats->hit_rate >= 0.0 && stats->hit_rate <= 1.0);
    CHECK(stats->fragmentation_ratio >= 0.0 && stats->fragmentation_ratio <= 1.0);
    CHECK(stats->fragmentation_index >= 0.0 && stats->fragmentation_index <= 1.0);
}

static void counters(void)
{
    const genesis_stats start = stats_of(0);
    check_consistent(&start);
    CHECK(start.allocations == 0 && start.requested_bytes.peak == 0 && start.hit_rate <= 0.0);

    void *large = block_of(4 * MIB, STREAM(0));
    void *small = block_of(1000, STREAM(1));
    const genesis_stats full = stats_of(0);
    check_consistent(&full);
    CHECK(full.allocations == 2 && full.frees == 0 && full.misses >= 1);
    CHECK(full.requested_bytes.current == 4 * MIB + 1000);
    CHECK(full.requested_bytes.peak == full.requested_bytes.current);
    CHECK(full.requested_bytes.total == full.requested_bytes.current);
    CHECK(full.driver_memory_calls > 0 && full.driver_nanoseconds > 0);

    genesis_free(large, 4 * MIB, 0, STREAM(0));
    const genesis_stats less = stats_of(0);
    check_consistent(&less);
    CHECK(less.frees == 1 && less.requested_bytes.current == 1000);
    CHECK(less.requested_bytes.peak == 4 * MIB + 1000);

    CHECK_OK(genesis_stats_reset_peak(0));
    const genesis_stats reset = stats_of(0);
    check_consistent(&reset);
    CHECK(reset.requested_bytes.peak == 1000);
    CHECK(reset.allocated_bytes.peak == reset.allocated_bytes.current);
    CHECK(reset.active_bytes.peak == reset.active_bytes.current);
    CHECK(reset.reserved_bytes.peak == reset.reserved_bytes.current);
    CHECK(reset.requested_bytes.total == 4 * MIB + 1000);

    large = block_of(4 * MIB, STREAM(0));
    CHECK(stats_of(0).requested_bytes.peak == 4 * MIB + 1000);
    CHECK(strategy_is("Naive") || stats_of(0).hits == 1);
    genesis_free(large, 0, STREAM(0));
    genesis_free(small, 0, STREAM(1));
    CHECK(stats_of(0).requested_bytes.current == 0);
}

static genesis_pool_stats pool_of(int pool)
{
    genesis_pool_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_pool_stats_get(0, pool, &stats));
    return stats;
}

/* One pool's blocks, and those of both pools. */
static void check_pool(int pool, uint64_t blocks, uint64_t requested_bytes)
{
    const genesis_pool_stats stats = pool_of(pool);
    CHECK(stats.allocation.current == blocks && stats.active.current == blocks);
    CHECK(stats.requested_bytes.current == requested_bytes);
    CHECK(stats.allocated_bytes.current >= requested_bytes);
    CHECK(stats.active_bytes.current == stats.allocated_bytes.current);
    CHECK(stats.reserved_bytes.current >= stats.allocated_bytes.current);
    CHECK((stats.segment.current > 0) == (stats.reserved_bytes.current > 0));
    CHECK(stats.inactive_split_bytes.current <=
          stats.reserved_bytes.current - stats.active_bytes.current);
    CHECK((stats.inactive_split.current > 0) == (stats.inactive_split_bytes.current > 0));
    CHECK(stats.allocation.peak >= blocks && stats.allocation.total >= blocks);
}

/* Blocks of at most 1 MiB are small, those above are large. */
static void pools(void)
{
    CHECK_OK(genesis_cache_empty(0));
    CHECK_OK(genesis_stats_reset_peak(0));
    const uint64_t total = pool_of(GENESIS_POOL_ALL).allocation.total;
    void *small = block_of(MIB, STREAM(0));
    void *large = block_of(MIB + 1, STREAM(0));
    void *larger = block_of(4 * MIB, STREAM(1));
    check_pool(GENESIS_POOL_SMALL, 1, MIB);
    check_pool(GENESIS_POOL_LARGE, 2, 5 * MIB + 1);
    check_pool(GENESIS_POOL_ALL, 3, 6 * MIB + 1);
    CHECK(pool_of(GENESIS_POOL_ALL).reserved_bytes.current == stats_of(0).reserved_bytes.current);
    genesis_free(larger, 0, STREAM(1));
    check_pool(GENESIS_POOL_LARGE, 1, MIB + 1);
    CHECK(pool_of(GENESIS_POOL_LARGE).requested_bytes.peak == 5 * MIB + 1);
    CHECK_OK(genesis_stats_reset_peak(0));
    CHECK(pool_of(GENESIS_POOL_LARGE).requested_bytes.peak == MIB + 1);
    genesis_free(large, 0, STREAM(0));
    genesis_free(small, 0, STREAM(0));
    check_pool(GENESIS_POOL_ALL, 0, 0);
    CHECK(pool_of(GENESIS_POOL_ALL).allocation.total == total + 3);
}

static void wrong_pools(void)
{
    genesis_pool_stats stats;
    unsigned char *bytes = (unsigned char *)&stats;
    const size_t rest = sizeof stats - sizeof stats.struct_size;
    memset(&stats, 0xaa, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_pool_stats_get(0, -1, &stats));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_pool_stats_get(0, GENESIS_POOL_LARGE + 1, &stats));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_pool_stats_get(9, GENESIS_POOL_ALL, &stats));
    stats.struct_size = sizeof stats.struct_size;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_pool_stats_get(0, GENESIS_POOL_ALL, &stats));
    CHECK(is_filled(bytes + sizeof stats.struct_size, rest, 0xaa));
    /* A program that knows only the first gauges gets those. */
    stats.struct_size = offsetof(genesis_pool_stats, active_bytes);
    CHECK_OK(genesis_pool_stats_get(0, GENESIS_POOL_ALL, &stats));
    CHECK(stats.reserved_bytes.current == stats_of(0).reserved_bytes.current);
    CHECK(is_filled((unsigned char *)&stats.active_bytes,
                    sizeof stats - offsetof(genesis_pool_stats, active_bytes), 0xaa));
}

static void largest_allocations(void)
{
    const size_t sizes[] = {3000, MIB, 700, 5000, 2 * MIB};
    void *blocks[LENGTH(sizes)];
    for (size_t index = 0; index < LENGTH(sizes); index++) {
        blocks[index] = block_of(sizes[index], STREAM(index));
    }
    genesis_block_info found[8];
    size_t count = 99;
    memset(found, 0xaa, sizeof found);
    CHECK_OK(genesis_largest_allocations_get(0, 3000, found, 3, &count));
    CHECK(count == 4);
    CHECK(found[0].address == blocks[4] && found[0].requested_bytes == 2 * MIB);
    CHECK(found[1].address == blocks[1] && found[1].stream == STREAM(1) && found[1].device == 0);
    CHECK(found[2].address == blocks[3] && found[2].allocated_bytes >= 5000);
    CHECK(is_filled((unsigned char *)&found[3], sizeof found[3], 0xaa));
    CHECK_OK(genesis_largest_allocations_get(0, 0, found, LENGTH(found), &count));
    CHECK(count == 5 && found[4].requested_bytes == 700);
    CHECK_OK(genesis_largest_allocations_get(0, 0, NULL, 0, &count));
    CHECK(count == 5);
    CHECK_OK(genesis_largest_allocations_get(0, SIZE_MAX, found, LENGTH(found), &count));
    CHECK(count == 0);
    for (size_t index = 0; index < LENGTH(sizes); index++) {
        genesis_free(blocks[index], 0, STREAM(index));
    }
    CHECK_OK(genesis_largest_allocations_get(0, 0, NULL, 0, &count));
    CHECK(count == 0);
}

static void memory_info(void)
{
    CHECK_OK(genesis_cache_empty(0));
    size_t free_at_first, total, free_now;
    CHECK_OK(genesis_memory_info_get(0, &free_at_first, &total));
    CHECK(free_at_first > 0 && free_at_first <= total);
    void *block = block_of(64 * MIB, STREAM(0));
    CHECK_OK(genesis_memory_info_get(0, &free_now, NULL));
    CHECK(free_now <= free_at_first - 64 * MIB);
    genesis_free(block, 0, STREAM(0));
    /* Cached or not, it is free. */
    CHECK_OK(genesis_memory_info_get(0, &free_now, &total));
    CHECK(free_now == free_at_first);
    CHECK_OK(genesis_memory_info_get(0, NULL, &total));
    CHECK_OK(genesis_memory_info_get(0, NULL, NULL));
}

int main(void)
{
    counters();
    struct_sizes();
    pools();
    wrong_pools();
    largest_allocations();
    memory_info();
    return 0;
}
