/* What cannot be served or is no block is refused, reported, and harms nothing. */
#include "check.h"

/* Pointers that are no blocks are also reported in the log. */
static int reports;

static void count_report(void *user_data, genesis_log_level level, const char *message)
{
    CHECK(user_data == &reports);
    CHECK(level == GENESIS_LOG_LEVEL_ERROR);
    CHECK(message[0] != '\0' && strchr(message, '\n') == NULL);
    reports++;
}

static void *refused(size_t size, int device)
{
    void *block = genesis_malloc(size, device, STREAM(0));
    CHECK(block == NULL);
    return block;
}

static void sizes(void)
{
    const size_t absurd[] = {SIZE_MAX, SIZE_MAX - 510, SIZE_MAX - 511, SIZE_MAX / 2 + 1,
                             ((size_t)1 << 47) + 1};
    for (size_t index = 0; index < LENGTH(absurd); index++) {
        CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, refused(absurd[index], 0));
        unsigned char *small = block_of(100, STREAM(0));
        fill(small, 100, 1);
        genesis_free(small, 100, 0, STREAM(0));
    }
    /* Not absurd, but more than there is. */
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, refused((size_t)1 << 46, 0));
    /* From an exabyte on a request counts as a mistake, not as a want of memory. */
    CHECK(stats_of(0).out_of_memory_events == 2);
    CHECK(reports == 2);
}

static void devices(void)
{
    const int absent[] = {99, 1, -1, INT_MIN, INT_MAX};
    for (size_t index = 0; index < LENGTH(absent); index++) {
        CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, refused(512, absent[index]));
        CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, refused(SIZE_MAX, absent[index]));
    }
    CHECK(reports == 2);
}

static void expect_foreign(void *pointer)
{
    const int before = reports;
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_free(pointer, 512, 0, STREAM(0)));
    CHECK(reports == before + 1);
}

static void foreign_pointers(unsigned char *live)
{
    int on_stack = 0;
    void *from_malloc = malloc(512);
    expect_foreign(&on_stack);
    expect_foreign(from_malloc);
    expect_foreign(&reports);
    expect_foreign((void *)(uintptr_t)1);
    expect_foreign((void *)(uintptr_t)512);
    expect_foreign((void *)UINTPTR_MAX);
    expect_foreign((void *)(UINTPTR_MAX - 511));
    expect_foreign(live + 1);
    expect_foreign(live + 512);
    expect_foreign(live + 4095);
    free(from_malloc);
}

static void double_frees(void)
{
    unsigned char *blocks[3];
    for (size_t index = 0; index < 3; index++) {
        blocks[index] = block_of(4096, STREAM(0));
    }
    for (size_t index = 0; index < 3; index++) {
        genesis_free(blocks[index], 4096, 0, STREAM(0));
    }
    /* Naive has given the memory back, and with it any memory of the pointer. */
    const genesis_status expected =
        strategy_is("Naive") ? GENESIS_STATUS_FOREIGN_POINTER : GENESIS_STATUS_DOUBLE_FREE;
    for (size_t index = 0; index < 3; index++) {
        const int before = reports;
        CHECK_REPORTS(expected, genesis_free(blocks[index], 4096, 0, STREAM(0)));
        CHECK_REPORTS(expected, genesis_block_record_stream(blocks[index], STREAM(1)));
        CHECK(reports == before + 2);
    }
}

static void expect_release_of(void *pointer, genesis_status status)
{
    const int before = reports;
    const genesis_stats stats = stats_of(0);
    CHECK_FAILS(status, genesis_block_release(pointer));
    CHECK(reports == before + 1);
    CHECK(stats_of(0).frees == stats.frees);
    CHECK(stats_of(0).reserved_bytes.current == stats.reserved_bytes.current);
}

/* Giving a block's memory back checks the pointer as a free does. */
static void releases(unsigned char *live)
{
    int on_stack = 0;
    expect_release_of(&on_stack, GENESIS_STATUS_FOREIGN_POINTER);
    expect_release_of((void *)UINTPTR_MAX, GENESIS_STATUS_FOREIGN_POINTER);
    expect_release_of(live + 1, GENESIS_STATUS_FOREIGN_POINTER);
    expect_release_of(live + 512, GENESIS_STATUS_FOREIGN_POINTER);
    /* Strategies that cut blocks keep this one's memory, which it shares with the live one. */
    const int is_kept = strategy_is("Caching") || strategy_is("Arena") || strategy_is("Elastic");
    const genesis_status of_small =
        is_kept ? GENESIS_STATUS_DOUBLE_FREE : GENESIS_STATUS_FOREIGN_POINTER;
    unsigned char *small = block_of(4096, STREAM(0));
    CHECK_OK(genesis_block_release(small));
    expect_release_of(small, of_small);
    CHECK_REPORTS(of_small, genesis_free(small, 4096, 0, STREAM(0)));
    /* A freed block is not there to be released either. */
    small = block_of(4096, STREAM(0));
    genesis_free(small, 4096, 0, STREAM(0));
    expect_release_of(small, strategy_is("Naive") ? GENESIS_STATUS_FOREIGN_POINTER
                                                  : GENESIS_STATUS_DOUBLE_FREE);
    /* A large one's memory goes back. Elastic's extents may begin in other blocks. */
    unsigned char *large = block_of(64 * MIB, STREAM(0));
    const uint64_t reserved_bytes = stats_of(0).reserved_bytes.current;
    CHECK_OK(genesis_block_release(large));
    const uint64_t returned_bytes = reserved_bytes - stats_of(0).reserved_bytes.current;
    CHECK(strategy_is("Elastic") ? returned_bytes >= 32 * MIB : returned_bytes == 64 * MIB);
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_block_release(large));
}

/* Size, device and stream of a free are not looked at. */
static void wrong_arguments(void)
{
    const genesis_stats before = stats_of(0);
    unsigned char *block = block_of(3000, STREAM(0));
    genesis_last_error_clear();
    genesis_free(block, SIZE_MAX, -7, STREAM(9));
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    const genesis_stats after = stats_of(0);
    CHECK(after.requested_bytes.current == before.requested_bytes.current);
    CHECK(after.allocated_bytes.current == before.allocated_bytes.current);
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(count_report, &reports));
    sizes();
    devices();
    unsigned char *live = block_of(4096, STREAM(0));
    fill(live, 4096, 0x5a);
    foreign_pointers(live);
    double_frees();
    releases(live);
    wrong_arguments();
    CHECK(is_filled(live, 4096, 0x5a));
    genesis_block_info info;
    CHECK_OK(genesis_block_info_get(live, &info));
    CHECK(info.requested_bytes == 4096);
    const genesis_stats stats = stats_of(0);
    CHECK(stats.requested_bytes.current == 4096);
    CHECK(stats.allocations == stats.frees + 1);
    genesis_free(live, 4096, 0, STREAM(0));
    return 0;
}
