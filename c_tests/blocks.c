/* Blocks: aligned, apart, as large as asked for, and their bytes stay what they are. */
#include "check.h"

/* clang-format off */
static const size_t SIZES[] = {
    1,           2,         255,          511,          512,           513,
    4095,        4096,      4097,         64 * KIB,     64 * KIB + 1,  MIB - 1,
    MIB,         MIB + 1,   2 * MIB - 1,  2 * MIB,      2 * MIB + 1,   5 * MIB,
    10 * MIB,    10 * MIB + 1, 16 * MIB,  16 * MIB + 1, 20 * MIB + 1,  33 * MIB,
};
/* clang-format on */

#define COUNT LENGTH(SIZES)

static unsigned char *blocks[COUNT];

static void allocate(size_t index)
{
    blocks[index] = block_of(SIZES[index], STREAM(index % 3));
    fill(blocks[index], SIZES[index], (unsigned char)(index + 1));
}

static void release(size_t index)
{
    CHECK(is_filled(blocks[index], SIZES[index], (unsigned char)(index + 1)));
    genesis_free(blocks[index], SIZES[index], 0, STREAM(index % 3));
    blocks[index] = NULL;
}

static void check_extents(void)
{
    for (size_t index = 0; index < COUNT; index++) {
        genesis_block_info info;
        CHECK_OK(genesis_block_info_get(blocks[index], &info));
        CHECK(info.address == blocks[index]);
        CHECK(info.requested_bytes == SIZES[index]);
        CHECK(info.allocated_bytes >= SIZES[index]);
        CHECK(info.stream == STREAM(index % 3));
        CHECK(info.device == 0);
        for (size_t other = 0; other < COUNT; other++) {
            CHECK(other == index || blocks[other] >= blocks[index] + info.allocated_bytes ||
                  blocks[other] < blocks[index]);
        }
        /* Any byte of the block names it. */
        CHECK_OK(genesis_block_info_get(blocks[index] + SIZES[index] - 1, &info));
        CHECK(info.address == blocks[index]);
    }
}

static void no_block_for_no_bytes(void)
{
    const uint64_t allocations = stats_of(0).allocations;
    genesis_last_error_clear();
    CHECK(genesis_malloc(0, 0, LEGACY_STREAM) == NULL);
    CHECK(genesis_malloc(0, 99, LEGACY_STREAM) == NULL);
    genesis_free(NULL, 0, 0, LEGACY_STREAM);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    CHECK(stats_of(0).allocations == allocations);
}

/* A size may be used again and again without holding more. */
static void reuse(void)
{
    uint64_t reserved_bytes = 0;
    for (int round = 0; round < 50; round++) {
        unsigned char *first = block_of(3 * MIB, LEGACY_STREAM);
        unsigned char *second = block_of(700, LEGACY_STREAM);
        fill(first, 3 * MIB, 1);
        fill(second, 700, 2);
        CHECK(is_filled(first, 3 * MIB, 1));
        genesis_free(first, 3 * MIB, 0, LEGACY_STREAM);
        CHECK(is_filled(second, 700, 2));
        genesis_free(second, 700, 0, LEGACY_STREAM);
        if (round == 0) {
            reserved_bytes = stats_of(0).reserved_bytes.current;
        }
    }
    CHECK(stats_of(0).reserved_bytes.current <= reserved_bytes);
}

int main(void)
{
    no_block_for_no_bytes();
    reuse();
    for (size_t index = 0; index < COUNT; index++) {
        allocate(index);
    }
    check_extents();
    for (int round = 0; round < 3; round++) {
        for (size_t index = (size_t)round % 2; index < COUNT; index += 2) {
            release(index);
        }
        for (size_t index = (size_t)round % 2; index < COUNT; index += 2) {
            allocate(index);
        }
        check_extents();
    }
    for (size_t index = 0; index < COUNT; index++) {
        release(index);
    }
    const genesis_stats stats = stats_of(0);
    CHECK(stats.requested_bytes.current == 0 && stats.allocated_bytes.current == 0);
    CHECK(stats.allocations == stats.frees);
    return 0;
}
