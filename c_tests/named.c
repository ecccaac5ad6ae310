/* Allocations with names: the names appear as their call sites, and nothing else changes. */
#include "check.h"

typedef struct {
    const void *address;
    char location[256];
} sought;

static void find(void *user_data, const genesis_live_block *block)
{
    sought *wanted = (sought *)user_data;
    if (block->address == wanted->address) {
        snprintf(wanted->location, sizeof wanted->location, "%s", block->location);
    }
}

/* Whether the block at `address` is said to be from `location`. */
static int is_from(const void *address, const char *location)
{
    sought wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.address = address;
    CHECK_OK(genesis_live_blocks_visit(0, 0, find, &wanted));
    if (strcmp(wanted.location, location) != 0) {
        fprintf(stderr, "from \"%s\", not \"%s\"\n", wanted.location, location);
        return 0;
    }
    return 1;
}

static void names_are_kept_by_blocks(void)
{
    void *weight = genesis_malloc_named(1000, 0, STREAM(1), "layer1:", "weight");
    void *bias = genesis_malloc_named(5 * MIB, 0, STREAM(1), "layer1:", "bias");
    void *again = genesis_malloc_named(1000, 0, STREAM(2), "layer1:", "weight");
    void *alone = genesis_malloc_named(1000, 0, STREAM(1), NULL, "workspace");
    void *within = genesis_malloc_named(1000, 0, STREAM(1), "layer2:", "");
    CHECK(weight != NULL && bias != NULL && again != NULL && alone != NULL && within != NULL);
    CHECK(is_from(weight, "weight\nlayer1:"));
    CHECK(is_from(bias, "bias\nlayer1:"));
    CHECK(is_from(again, "weight\nlayer1:"));
    CHECK(is_from(alone, "workspace"));
    CHECK(is_from(within, "layer2:"));
    /* Names are the call's; the next has a stack again. */
    void *unnamed = genesis_malloc(1000, 0, STREAM(1));
    void *empty = genesis_malloc_named(1000, 0, STREAM(1), NULL, "");
    const char *mine = "names_are_kept_by_blocks";
    sought wanted;
    wanted.address = unnamed;
    CHECK_OK(genesis_live_blocks_visit(0, 0, find, &wanted));
    CHECK(strstr(wanted.location, mine) != NULL);
    wanted.address = empty;
    CHECK_OK(genesis_live_blocks_visit(0, 0, find, &wanted));
    CHECK(strstr(wanted.location, mine) != NULL);
    void *blocks[] = {weight, bias, again, alone, within, unnamed, empty};
    for (size_t index = 0; index < LENGTH(blocks); index++) {
        genesis_free(blocks[index], 0, NULL);
    }
}

static void it_is_a_malloc_else(void)
{
    genesis_last_error_clear();
    CHECK(genesis_malloc_named(0, 0, STREAM(1), "a", "b") == NULL);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY,
                  genesis_malloc_named(SIZE_MAX, 0, STREAM(1), "a", "b"));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE,
                  genesis_malloc_named(1000, 7, STREAM(1), "a", "b"));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE,
                  genesis_malloc_named(1000, -1, STREAM(1), "a", "b"));
    unsigned char *block = (unsigned char *)genesis_malloc_named(1000, 0, STREAM(1), "a", "\xff");
    CHECK(block != NULL && (uintptr_t)block % ALIGNMENT == 0);
    fill(block, 1000, 3);
    genesis_free(block, 0, STREAM(1));
    const genesis_stats stats = stats_of(0);
    CHECK(stats.allocations == stats.frees);
}

int main(void)
{
    it_is_a_malloc_else();
    /* Sites are noted while somebody debugs. */
    CHECK_OK(genesis_option_set("GENESIS_DEBUG", "poison"));
    names_are_kept_by_blocks();
    it_is_a_malloc_else();
    return 0;
}
