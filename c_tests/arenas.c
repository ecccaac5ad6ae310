/* Arenas, fixed-size pools and memory managers, over each kind of memory. */
#include "check.h"

static const int KINDS[] = {GENESIS_MEMORY_KIND_DEVICE, GENESIS_MEMORY_KIND_PAGEABLE,
                            GENESIS_MEMORY_KIND_PINNED};

static genesis_memory_use memory_of(int kind, int any_thread)
{
    genesis_memory_use use;
    memset(&use, 0, sizeof use);
    use.kind = kind;
    use.stream = kind == GENESIS_MEMORY_KIND_DEVICE ? STREAM(0) : NULL;
    use.any_thread = any_thread;
    return use;
}

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static genesis_arena *arena_of(int kind, int any_thread, size_t limit_bytes)
{
    genesis_arena_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.memory = memory_of(kind, any_thread);
    options.chunk_bytes = (size_t)64 * 1024;
    options.limit_bytes = limit_bytes;
    genesis_arena *arena = NULL;
    CHECK_OK(genesis_arena_create(&options, &arena));
    CHECK(arena != NULL);
    return arena;
}

static unsigned char *part_of(genesis_arena *arena, size_t size, size_t alignment)
{
    unsigned char *part = (unsigned char *)genesis_arena_allocate(arena, size, alignment);
    CHECK(part != NULL);
    CHECK((uintptr_t)part % (alignment == 0 ? 16 : alignment) == 0);
    return part;
}

static genesis_arena_stats arena_stats_of(genesis_arena *arena)
{
    genesis_arena_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_arena_stats_get(arena, &stats));
    CHECK(stats.struct_size == sizeof stats);
    return stats;
}

static void an_arena_is_reset(int kind)
{
    genesis_arena *arena = arena_of(kind, 0, 0);
    unsigned char *first = NULL;
    for (int step = 0; step < 4; ++step) {
        for (size_t n = 1; n <= 60; ++n) {
            unsigned char *part = part_of(arena, n * 100, (size_t)1 << (n % 13));
            fill(part, n * 100, (unsigned char)n);
            CHECK(is_filled(part, n * 100, (unsigned char)n));
            if (n == 1 && step >= 2) {
                CHECK(first == NULL || step == 2 || part == first);
                first = part;
            }
        }
        CHECK_OK(genesis_arena_reset(arena));
    }
    const genesis_arena_stats stats = arena_stats_of(arena);
    CHECK(stats.resets == 4 && stats.chunks == 1 && stats.used_bytes == 0);
    CHECK(stats.high_water_bytes >= (uint64_t)60 * 61 / 2 * 100 &&
          stats.held_bytes >= stats.high_water_bytes);
    CHECK_OK(genesis_arena_trim(arena));
    CHECK(arena_stats_of(arena).held_bytes == 0);
    CHECK(genesis_arena_allocate(arena, 0, 0) == NULL);
    genesis_arena_destroy(arena);
}

static void marks_and_limits(int kind)
{
    genesis_arena *arena = arena_of(kind, 1, MIB);
    genesis_arena_position position;
    part_of(arena, 100, 0);
    CHECK_OK(genesis_arena_mark(arena, &position));
    unsigned char *after = part_of(arena, 1000, 64);
    CHECK_OK(genesis_arena_rewind(arena, position));
    CHECK(part_of(arena, 1000, 64) == after);
    CHECK_REPORTS(GENESIS_STATUS_LIMIT_REACHED, genesis_arena_allocate(arena, 2 * MIB, 0));
    CHECK_MESSAGE("the arena is full");
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_allocate(arena, 1, 48));
    CHECK_OK(genesis_arena_reset(arena));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_rewind(arena, position));
    genesis_arena_destroy(arena);
}

static void other_streams(void)
{
    genesis_arena *arena = arena_of(GENESIS_MEMORY_KIND_DEVICE, 0, 0);
    for (int step = 0; step < 3; ++step) {
        for (int number = 0; number < 3; ++number) {
            unsigned char *part =
                (unsigned char *)genesis_arena_allocate_on(arena, 5000, 0, STREAM(number));
            CHECK(part != NULL);
            fill(part, 5000, (unsigned char)number);
        }
        CHECK_OK(genesis_arena_reset(arena));
    }
    genesis_arena_destroy(arena);
    genesis_arena *host = arena_of(GENESIS_MEMORY_KIND_PAGEABLE, 0, 0);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT,
                  genesis_arena_allocate_on(host, 1, 0, STREAM(0)));
    genesis_arena_destroy(host);
}

static void a_buffer_outlives_the_arena(int kind)
{
    genesis_arena *arena = arena_of(kind, 1, 0);
    genesis_dlpack_buffer *buffer = NULL;
    CHECK_OK(genesis_arena_buffer_create(arena, 1000, 0, &buffer));
    unsigned char *bytes = (unsigned char *)genesis_dlpack_buffer_data_get(buffer);
    CHECK_OK(genesis_dlpack_buffer_record_stream(buffer, STREAM(1)));
    fill(bytes, 1000, 7);
    for (int step = 0; step < 3; ++step) {
        CHECK_OK(genesis_arena_reset(arena));
        fill(part_of(arena, 20000, 0), 20000, 9);
    }
    genesis_arena_destroy(arena);
    unsigned char *other = (unsigned char *)genesis_host_malloc(1000, GENESIS_HOST_KIND_PAGEABLE);
    CHECK(other != NULL);
    fill(other, 1000, 8);
    CHECK(is_filled(bytes, 1000, 7));
    genesis_host_free(other);
    genesis_dlpack_buffer_release(buffer);
    genesis_arena *unshared = arena_of(kind, 0, 0);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_arena_buffer_create(unshared, 1000, 0, &buffer));
    genesis_arena_destroy(unshared);
}

static genesis_fixed_pool *pool_of(int kind, size_t count, size_t growth)
{
    genesis_fixed_pool_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.memory = memory_of(kind, 1);
    options.block_bytes = 1000;
    options.alignment = 64;
    options.count = count;
    options.growth = growth;
    genesis_fixed_pool *pool = NULL;
    CHECK_OK(genesis_fixed_pool_create(&options, &pool));
    return pool;
}

static void a_pool_of_one_size(int kind)
{
    enum { COUNT = 20 };
    genesis_fixed_pool *pool = pool_of(kind, COUNT, 0);
    unsigned char *blocks[COUNT];
    for (int n = 0; n < COUNT; ++n) {
        blocks[n] = (unsigned char *)genesis_fixed_pool_allocate(pool);
        CHECK(blocks[n] != NULL && (uintptr_t)blocks[n] % 64 == 0);
        fill(blocks[n], 1000, (unsigned char)n);
    }
    CHECK_REPORTS(GENESIS_STATUS_LIMIT_REACHED, genesis_fixed_pool_allocate(pool));
    CHECK_MESSAGE("the pool is full");
    CHECK_OK(genesis_fixed_pool_free(pool, blocks[3]));
    CHECK_FAILS(GENESIS_STATUS_DOUBLE_FREE, genesis_fixed_pool_free(pool, blocks[3]));
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_fixed_pool_free(pool, blocks[4] + 1));
    CHECK_OK(genesis_fixed_pool_free(pool, NULL));
    CHECK(genesis_fixed_pool_allocate(pool) == blocks[3]);
    for (int n = 4; n < COUNT; ++n) {
        CHECK(is_filled(blocks[n], 1000, (unsigned char)n));
    }
    genesis_fixed_pool_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_fixed_pool_stats_get(pool, &stats));
    CHECK(stats.live_blocks == COUNT && stats.blocks == COUNT && stats.refusals == 1);
    genesis_dlpack_buffer *buffer = NULL;
    CHECK_OK(genesis_fixed_pool_free(pool, blocks[5]));
    CHECK_OK(genesis_fixed_pool_buffer_create(pool, &buffer));
    CHECK(genesis_dlpack_buffer_data_get(buffer) == blocks[5]);
    genesis_fixed_pool_destroy(pool);
    fill(blocks[5], 1000, 1);
    genesis_dlpack_buffer_release(buffer);

    genesis_fixed_pool *growing = pool_of(kind, 0, 4);
    for (int n = 0; n < 10; ++n) {
        CHECK(genesis_fixed_pool_allocate(growing) != NULL);
    }
    genesis_fixed_pool_destroy(growing);
}

static void tiers(int kind)
{
    const genesis_memory_tier sizes[] = {{1024, 3}, {64, 5}};
    genesis_memory_manager_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.memory = memory_of(kind, 1);
    options.tiers = sizes;
    options.tier_count = LENGTH(sizes);
    options.arena_bytes = (size_t)64 * 1024;
    genesis_memory_manager *manager = NULL;
    CHECK_OK(genesis_memory_manager_create(&options, &manager));
    void *blocks[8];
    for (size_t n = 0; n < 8; ++n) {
        blocks[n] = genesis_memory_manager_allocate(manager, n < 4 ? 50 : 1000, 0);
        CHECK(blocks[n] != NULL);
        fill((unsigned char *)blocks[n], n < 4 ? 50 : 1000, (unsigned char)n);
    }
    genesis_memory_manager_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_memory_manager_stats_get(manager, &stats));
    CHECK(stats.pool_blocks == 7 && stats.arena_blocks == 1 && stats.overflows == 1);
    for (size_t n = 0; n < 8; ++n) {
        CHECK(is_filled((unsigned char *)blocks[n], n < 4 ? 50 : 1000, (unsigned char)n));
        CHECK_OK(genesis_memory_manager_free(manager, blocks[n]));
        CHECK_FAILS(GENESIS_STATUS_DOUBLE_FREE, genesis_memory_manager_free(manager, blocks[n]));
    }
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_memory_manager_free(manager, &stats));
    CHECK_REPORTS(GENESIS_STATUS_LIMIT_REACHED, genesis_memory_manager_allocate(manager, MIB, 0));
    genesis_dlpack_buffer *buffer = NULL;
    CHECK_OK(genesis_memory_manager_buffer_create(manager, 5000, 0, &buffer));
    genesis_memory_manager_destroy(manager);
    fill((unsigned char *)genesis_dlpack_buffer_data_get(buffer), 5000, 1);
    genesis_dlpack_buffer_release(buffer);
}

static void wrong_options(void)
{
    genesis_arena_options options;
    genesis_arena *arena = NULL;
    memset(&options, 0, sizeof options);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_create(NULL, &arena));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_create(&options, &arena));
    CHECK_MESSAGE("struct_size");
    options.struct_size = sizeof options;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_create(&options, NULL));
    options.memory.kind = 3;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_create(&options, &arena));
    options.memory.kind = GENESIS_MEMORY_KIND_DEVICE;
    options.memory.stream = (genesis_stream)2; /* cudaStreamPerThread */
    options.memory.any_thread = 1;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_create(&options, &arena));
    options.memory.any_thread = 0;
    options.memory.device = -2;
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_arena_create(&options, &arena));
    CHECK(arena == NULL);
    genesis_arena_destroy(NULL);
    genesis_fixed_pool_destroy(NULL);
    genesis_memory_manager_destroy(NULL);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_allocate(NULL, 1, 0));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_fixed_pool_allocate(NULL));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_memory_manager_allocate(NULL, 1, 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_arena_reset(NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_fixed_pool_free(NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_memory_manager_free(NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_dlpack_buffer_record_stream(NULL, NULL));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    for (size_t n = 0; n < LENGTH(KINDS); ++n) {
        an_arena_is_reset(KINDS[n]);
        marks_and_limits(KINDS[n]);
        a_buffer_outlives_the_arena(KINDS[n]);
        a_pool_of_one_size(KINDS[n]);
        tiers(KINDS[n]);
    }
    other_streams();
    wrong_options();
    CHECK_OK(genesis_cache_empty(-1));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    return 0;
}
