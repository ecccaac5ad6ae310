/* Limits count physical bytes, in bytes or as a part of the device. */
#include "check.h"

static int messages;

static void count_message(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    CHECK(level == GENESIS_LOG_LEVEL_ERROR && message[0] != '\0');
    messages++;
}

static void *refused(size_t size)
{
    void *block = genesis_malloc(size, 0, STREAM(0));
    CHECK(block == NULL);
    return block;
}

static void check_held(size_t limit_bytes)
{
    CHECK(stats_of(0).reserved_bytes.current <= limit_bytes);
}

static void in_bytes(void)
{
    const size_t limit = 64 * MIB;
    size_t bytes = 99;
    CHECK_OK(genesis_memory_limit_get(0, &bytes));
    CHECK(bytes == 0);
    CHECK_OK(genesis_memory_limit_set(0, limit));
    CHECK_OK(genesis_memory_limit_get(0, &bytes));
    CHECK(bytes == limit);

    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, refused(limit + 1));
    CHECK_MESSAGE("out of memory: device=0 requested_bytes=67108865");
    CHECK_MESSAGE("limit_bytes=67108864");
    CHECK_MESSAGE("driver_free_bytes=");
    CHECK_MESSAGE("fragmentation_index=");
    CHECK_MESSAGE("hint: the limit in force stops it");
    CHECK(messages == 1);
    check_held(limit);

    /* What other sizes have left in the cache makes way. */
    unsigned char *blocks[8];
    for (size_t index = 0; index < LENGTH(blocks); index++) {
        blocks[index] = block_of(2 * MIB, STREAM(index % 2));
        fill(blocks[index], 2 * MIB, (unsigned char)index);
        check_held(limit);
    }
    for (size_t index = 0; index < LENGTH(blocks); index++) {
        CHECK(is_filled(blocks[index], 2 * MIB, (unsigned char)index));
        genesis_free(blocks[index], 0, STREAM(index % 2));
    }
    unsigned char *large = block_of(limit, STREAM(3));
    fill(large, limit, 7);
    check_held(limit);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, refused(4 * MIB));
    CHECK_MESSAGE("live_bytes=67108864 live_blocks=1");
    CHECK(is_filled(large, limit, 7));
    genesis_free(large, 0, STREAM(3));
    genesis_free(block_of(4 * MIB, STREAM(0)), 0, STREAM(0));
    check_held(limit);

    CHECK_OK(genesis_memory_limit_set(0, 0));
    CHECK_OK(genesis_memory_limit_get(0, &bytes));
    CHECK(bytes == 0);
    genesis_free(block_of(2 * limit, STREAM(0)), 0, STREAM(0));
}

static void a_limit_below_what_is_held(void)
{
    CHECK_OK(genesis_cache_empty(0));
    unsigned char *live = block_of(8 * MIB, STREAM(0));
    fill(live, 8 * MIB, 3);
    CHECK_OK(genesis_memory_limit_set(0, MIB));
    size_t free_bytes;
    CHECK_OK(genesis_memory_info_get(0, &free_bytes, NULL));
    CHECK(free_bytes <= MIB);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, refused(16 * MIB));
    CHECK(is_filled(live, 8 * MIB, 3));
    CHECK_OK(genesis_memory_limit_set(0, 0));
    genesis_free(live, 0, STREAM(0));
}

static void as_a_part(void)
{
    double fraction = 0.0;
    size_t free_bytes, total_bytes;
    CHECK_OK(genesis_cache_empty(0));
    CHECK_OK(genesis_memory_fraction_get(0, &fraction));
    CHECK(fraction >= 1.0 && fraction <= 1.0);
    CHECK_OK(genesis_memory_fraction_set(0, 0.01));
    CHECK_OK(genesis_memory_fraction_get(0, &fraction));
    CHECK(fraction > 0.0099 && fraction < 0.0101);
    CHECK_OK(genesis_memory_info_get(0, &free_bytes, &total_bytes));
    CHECK(free_bytes <= total_bytes / 100 + 1);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, refused(total_bytes / 50));
    check_held(total_bytes / 100 + 1);

    const double wrong[] = {0.0, -0.5, 1.0001, 1e300, -1.0};
    for (size_t index = 0; index < LENGTH(wrong); index++) {
        CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_memory_fraction_set(0, wrong[index]));
    }
    const double zero = 0.0;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_memory_fraction_set(0, zero / zero));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_memory_fraction_set(0, 1.0 / zero));
    CHECK_OK(genesis_memory_fraction_get(0, &fraction));
    CHECK(fraction > 0.0099 && fraction < 0.0101);

    /* The lower of both limits is in force. */
    CHECK_OK(genesis_memory_limit_set(0, MIB));
    CHECK_OK(genesis_memory_info_get(0, &free_bytes, NULL));
    CHECK(free_bytes <= MIB);
    CHECK_OK(genesis_memory_limit_set(0, 0));
    CHECK_OK(genesis_memory_fraction_set(0, 1.0));
}

static void absent_devices(void)
{
    const int absent[] = {99, -1, INT_MIN};
    size_t bytes = 7;
    double fraction = 7.0;
    for (size_t index = 0; index < LENGTH(absent); index++) {
        const int device = absent[index];
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_memory_limit_set(device, 1));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_memory_limit_get(device, &bytes));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_memory_fraction_get(device, &fraction));
        CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_memory_info_get(device, &bytes, &bytes));
    }
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_memory_fraction_set(99, 0.5));
    CHECK(bytes == 7 && fraction > 6.9);
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(count_message, NULL));
    in_bytes();
    a_limit_below_what_is_held();
    as_a_part();
    absent_devices();
    return 0;
}
