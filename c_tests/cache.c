/* Giving cached memory back: all, down to a target, by age, above a limit; live blocks stay. */
#include "check.h"

static unsigned char *survivor;

static uint64_t reserved(void)
{
    return stats_of(0).reserved_bytes.current;
}

/* Leaves blocks of `count` sizes in the cache, each too large to share a segment. */
static void leave_in_cache(int count)
{
    void *blocks[8];
    for (int index = 0; index < count; index++) {
        blocks[index] = block_of(32 * MIB + (size_t)index * 16 * MIB, STREAM(index));
    }
    for (int index = 0; index < count; index++) {
        genesis_free(blocks[index], 0, STREAM(index));
    }
}

static void empty(void)
{
    const uint64_t before = reserved();
    leave_in_cache(3);
    const int devices[] = {0, -1};
    for (size_t index = 0; index < LENGTH(devices); index++) {
        leave_in_cache(3);
        CHECK(strategy_is("Naive") || reserved() >= before + 144 * MIB);
        CHECK_OK(genesis_cache_empty(devices[index]));
        CHECK(reserved() <= before);
        /* Twice is as good as once. */
        CHECK_OK(genesis_cache_empty(devices[index]));
    }
}

static void trim(void)
{
    const uint64_t before = reserved();
    leave_in_cache(3);
    const uint64_t full = reserved();
    size_t released = 99;
    CHECK_OK(genesis_cache_trim(0, SIZE_MAX, &released));
    CHECK(released == 0 && reserved() == full);
    const size_t target = (size_t)before + 100 * MIB;
    CHECK_OK(genesis_cache_trim(0, target, &released));
    CHECK(released == full - reserved());
    CHECK(reserved() <= target);
    CHECK(strategy_is("Naive") || released > 0);
    CHECK_OK(genesis_cache_trim(-1, 0, NULL));
    CHECK(reserved() <= before);
}

static void garbage(void)
{
    size_t released = 99;
    CHECK_OK(genesis_cache_empty(0));
    const uint64_t before = reserved();
    leave_in_cache(2);
    CHECK_OK(genesis_garbage_collect(0, NULL));
    /* Not used since the collection before: it goes. */
    CHECK_OK(genesis_garbage_collect(0, &released));
    CHECK(reserved() <= before);
    CHECK_OK(genesis_garbage_collect(-1, &released));
    CHECK(released == 0);
}

static void compact(void)
{
    size_t reusable = 99;
    unsigned char *block = block_of(32 * MIB, STREAM(0));
    CHECK_OK(genesis_block_record_stream(block, STREAM(1)));
    genesis_free(block, 0, STREAM(0));
    CHECK_OK(genesis_memory_compact(0, &reusable));
    CHECK(stats_of(0).active_bytes.current == stats_of(0).allocated_bytes.current);
    CHECK_OK(genesis_memory_compact(-1, &reusable));
    CHECK(reusable == 0);
    CHECK_OK(genesis_memory_compact(-1, NULL));
}

static void limit(void)
{
    size_t bytes = 99;
    CHECK_OK(genesis_cache_empty(0));
    const uint64_t before = reserved();
    CHECK_OK(genesis_cache_limit_get(0, &bytes));
    CHECK(bytes == SIZE_MAX);
    leave_in_cache(3);
    const size_t kept = (size_t)stats_of(0).inactive_bytes.current / 2;
    CHECK_OK(genesis_cache_limit_set(0, kept));
    CHECK_OK(genesis_cache_limit_get(0, &bytes));
    CHECK(bytes == kept);
    CHECK(stats_of(0).inactive_bytes.current <= kept);
    leave_in_cache(3);
    CHECK(stats_of(0).inactive_bytes.current <= kept);
    CHECK_OK(genesis_cache_limit_set(0, 0));
    leave_in_cache(3);
    CHECK(reserved() <= before);
    CHECK_OK(genesis_cache_limit_set(0, SIZE_MAX));
    leave_in_cache(3);
    CHECK(strategy_is("Naive") || reserved() >= before + 144 * MIB);
}

static int compactions;

static void note_compaction(void *user_data, int device, const genesis_compaction *compaction)
{
    CHECK(user_data == &compactions && device == 0);
    CHECK(compaction->free_bytes * 10 > compaction->reserved_bytes * 3);
    CHECK(compaction->released_bytes > 0 && compaction->released_bytes <= compaction->free_bytes);
    compactions++;
}

/* Two thirds of what is held are free in pieces when a larger block is wanted. */
static void scatter(void)
{
    unsigned char *blocks[12];
    for (size_t index = 0; index < LENGTH(blocks); index++) {
        blocks[index] = block_of(32 * MIB, STREAM(0));
    }
    for (size_t index = 0; index < LENGTH(blocks); index++) {
        if (index % 3 != 0) {
            genesis_free(blocks[index], 0, STREAM(0));
        }
    }
    genesis_free(block_of(80 * MIB, STREAM(0)), 0, STREAM(0));
    for (size_t index = 0; index < LENGTH(blocks); index += 3) {
        genesis_free(blocks[index], 0, STREAM(0));
    }
}

static void watch(void)
{
    CHECK_OK(genesis_cache_empty(0));
    CHECK_OK(genesis_compaction_callback_set(note_compaction, &compactions));
    scatter();
    CHECK(compactions == 0);
    CHECK_OK(genesis_cache_empty(0));
    CHECK_OK(genesis_option_set("GENESIS_COMPACT_ABOVE", "0.3"));
    scatter();
    CHECK(strategy_is("Naive") || strategy_is("Elastic") || compactions == 1);
    CHECK_OK(genesis_option_set("GENESIS_COMPACT_ABOVE", "never"));
    CHECK_OK(genesis_compaction_callback_set(NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("GENESIS_COMPACT_ABOVE", "2"));
}

static void absent_devices(void)
{
    const int absent[] = {99, -2, INT_MIN, INT_MAX};
    size_t bytes = 7;
    for (size_t index = 0; index < LENGTH(absent); index++) {
        const int device = absent[index];
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_cache_empty(device));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_cache_trim(device, 0, &bytes));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_garbage_collect(device, &bytes));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_memory_compact(device, &bytes));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_cache_limit_set(device, 0));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_cache_limit_get(device, &bytes));
    }
    /* "All devices" is not for these. */
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_cache_limit_set(-1, 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_cache_limit_get(-1, &bytes));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_stats_reset_peak(-1));
    CHECK(bytes == 7);
}

int main(void)
{
    /* Nothing is cached where nothing was ever used. */
    CHECK_OK(genesis_cache_empty(-1));
    survivor = block_of(3 * MIB, STREAM(0));
    fill(survivor, 3 * MIB, 0x77);
    empty();
    trim();
    garbage();
    compact();
    watch();
    limit();
    absent_devices();
    CHECK(is_filled(survivor, 3 * MIB, 0x77));
    genesis_free(survivor, 0, STREAM(0));
    CHECK_OK(genesis_cache_empty(-1));
    CHECK(reserved() == 0);
    return 0;
}
