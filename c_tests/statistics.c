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
    largest_allocations();
    memory_info();
    return 0;
}
