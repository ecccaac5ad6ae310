/* Private pools: memory from functions of the program, and the blocks of a pool, read and placed.
 */
#include "check.h"

#define MOST_BLOCKS 64

static const genesis_pool_id POOL = {21, 22};

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

/* Where a pool's memory comes from. */
struct source {
    int is_empty;
    size_t live_bytes;
    size_t handed_out;
};

static void *get_memory(void *user_data, size_t bytes, int device, genesis_stream stream)
{
    struct source *source = (struct source *)user_data;
    void *memory = NULL;
    (void)stream;
    CHECK(device == 0);
    if (source->is_empty || posix_memalign(&memory, ALIGNMENT, bytes) != 0) {
        return NULL;
    }
    source->live_bytes += bytes;
    source->handed_out += 1;
    return memory;
}

static void take_memory(void *user_data, void *ptr, size_t bytes)
{
    struct source *source = (struct source *)user_data;
    source->live_bytes -= bytes;
    free(ptr);
}

static unsigned char *block_in_pool(size_t size)
{
    CHECK_OK(genesis_private_pool_begin(0, POOL));
    unsigned char *block = block_of(size, STREAM(1));
    CHECK_OK(genesis_private_pool_end(0, POOL));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    return block;
}

static void memory_comes_from_the_source(void)
{
    static struct source source;
    const genesis_pool_source functions = {&source, get_memory, take_memory};
    CHECK_OK(genesis_private_pool_create(0, POOL, 1, &functions));
    unsigned char *block = block_in_pool(3 * MIB);
    CHECK(source.handed_out == 1 && source.live_bytes >= 3 * MIB);
    fill(block, 3 * MIB, 7);

    /* A source that is empty is a shortage, and later it may have more. */
    source.is_empty = 1;
    CHECK_OK(genesis_private_pool_begin(0, POOL));
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_malloc(5 * MIB, 0, STREAM(1)));
    source.is_empty = 0;
    unsigned char *more = block_of(5 * MIB, STREAM(1));
    CHECK_OK(genesis_private_pool_end(0, POOL));
    CHECK_OK(genesis_private_pool_release(0, POOL));

    CHECK(is_filled(block, 3 * MIB, 7));
    genesis_free(block, 0, STREAM(1));
    genesis_free(more, 0, STREAM(1));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    CHECK(source.live_bytes == 0);
}

static void pools_are_made_once(void)
{
    struct source source = {0, 0, 0};
    genesis_pool_source functions = {&source, get_memory, NULL};
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_create(0, POOL, 0, &functions));
    functions.allocate = NULL;
    functions.free = take_memory;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_create(0, POOL, 0, &functions));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_private_pool_create(7, POOL, 0, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_private_pool_arena_create(-1, POOL));

    uint64_t uses = 9;
    CHECK_OK(genesis_private_pool_uses_get(0, POOL, &uses));
    CHECK(uses == 0);
    CHECK_OK(genesis_private_pool_arena_create(0, POOL));
    CHECK_OK(genesis_private_pool_hold(0, POOL, 0));
    CHECK_OK(genesis_private_pool_uses_get(0, POOL, &uses));
    CHECK(uses == 2);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_create(0, POOL, 0, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_arena_create(0, POOL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_uses_get(0, POOL, NULL));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_release(0, POOL));
}

/* How many blocks the pool has, all of which are written. */
static size_t blocks_of(genesis_pool_block *blocks)
{
    size_t count = 0;
    CHECK_OK(genesis_private_pool_blocks_get(0, POOL, blocks, MOST_BLOCKS, &count));
    CHECK(count <= MOST_BLOCKS);
    return count;
}

static size_t count_of(const genesis_pool_block *blocks, size_t count, int state)
{
    size_t found = 0;
    for (size_t index = 0; index < count; index++) {
        found += blocks[index].state == state;
    }
    return found;
}

static void blocks_are_read_and_placed(void)
{
    genesis_pool_block blocks[MOST_BLOCKS];
    size_t count = 99;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_blocks_get(0, POOL, blocks, MOST_BLOCKS, &count));
    CHECK(count == 99);
    CHECK_OK(genesis_private_pool_create(0, POOL, 0, NULL));
    CHECK(blocks_of(blocks) == 0);
    CHECK_OK(genesis_private_pool_blocks_place(0, POOL, NULL, 0));

    unsigned char *block = block_in_pool(3 * MIB);
    count = blocks_of(blocks);
    CHECK(count_of(blocks, count, GENESIS_BLOCK_STATE_LIVE) == 1);
    genesis_pool_block live = blocks[0];
    for (size_t index = 0; index < count; index++) {
        if (blocks[index].state == GENESIS_BLOCK_STATE_LIVE) {
            live = blocks[index];
        }
    }
    CHECK(live.address == (void *)block && live.requested_bytes == 3 * MIB);
    CHECK(live.allocated_bytes >= 3 * MIB && live.stream == STREAM(1) && live.is_small == 0);
    CHECK((unsigned char *)live.segment_address <= block);
    CHECK(block + live.allocated_bytes <=
          (unsigned char *)live.segment_address + live.segment_bytes);

    /* Without room only the number is told; a missing array or number is an error. */
    count = 0;
    CHECK_OK(genesis_private_pool_blocks_get(0, POOL, NULL, 0, &count));
    CHECK(count == blocks_of(blocks));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_blocks_get(0, POOL, NULL, 1, &count));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_blocks_get(0, POOL, blocks, MOST_BLOCKS, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_blocks_place(0, POOL, NULL, 1));

    /* What is live cannot be placed; what is free can, once. */
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_blocks_place(0, POOL, &live, 1));
    genesis_free(block, 0, STREAM(1));
    if (!strategy_is("Naive")) {
        const genesis_pool_block twice[2] = {live, live};
        CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                    genesis_private_pool_blocks_place(0, POOL, twice, 2));
        CHECK_OK(genesis_private_pool_blocks_place(0, POOL, &live, 1));
        fill(block, 3 * MIB, 5);
        CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                    genesis_private_pool_blocks_place(0, POOL, &live, 1));
        genesis_free(block, 0, STREAM(1));
    }
    CHECK_OK(genesis_private_pool_release(0, POOL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_blocks_place(0, POOL, &live, 1));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    memory_comes_from_the_source();
    pools_are_made_once();
    blocks_are_read_and_placed();
    CHECK(stats_of(0).requested_bytes.current == 0);
    return 0;
}
