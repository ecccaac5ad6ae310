/* Scratch memory of a step, in C: an arena on the device, a pool of requests, and a manager. */
#include <genesis.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int holds)
{
    if (!holds) {
        fprintf(stderr, "%s\n", genesis_last_error_message_get());
        exit(1);
    }
}

/* What each step needs is gone at its end. */
static void steps(genesis_stream stream)
{
    genesis_arena_options options = {.struct_size = sizeof options};
    options.memory.kind = GENESIS_MEMORY_KIND_DEVICE;
    options.memory.stream = stream;
    genesis_arena *arena = NULL;
    require(genesis_arena_create(&options, &arena) == GENESIS_STATUS_SUCCESS);
    for (int step = 0; step < 100; ++step) {
        for (int layer = 0; layer < 20; ++layer) {
            void *scratch = genesis_arena_allocate(arena, 100000, 0);
            require(scratch != NULL);
            /* … kernels on the stream … */
        }
        require(genesis_arena_reset(arena) == GENESIS_STATUS_SUCCESS);
    }
    genesis_arena_stats stats = {.struct_size = sizeof stats};
    genesis_arena_stats_get(arena, &stats);
    printf("%llu steps in %llu chunk\n", (unsigned long long)stats.resets,
           (unsigned long long)stats.chunks);
    genesis_arena_destroy(arena);
}

struct request {
    int number;
    char text[60];
};

/* Blocks of one size, on the host. */
static void requests(void)
{
    genesis_fixed_pool_options options = {.struct_size = sizeof options};
    options.memory.kind = GENESIS_MEMORY_KIND_PAGEABLE;
    options.block_bytes = sizeof(struct request);
    options.count = 100;
    genesis_fixed_pool *pool = NULL;
    require(genesis_fixed_pool_create(&options, &pool) == GENESIS_STATUS_SUCCESS);
    struct request *request = genesis_fixed_pool_allocate(pool);
    require(request != NULL);
    request->number = 1;
    require(genesis_fixed_pool_free(pool, request) == GENESIS_STATUS_SUCCESS);
    if (genesis_fixed_pool_free(pool, request) == GENESIS_STATUS_DOUBLE_FREE) {
        puts("a double free is reported");
    }
    genesis_fixed_pool_destroy(pool);
}

/* A few known sizes, reserved at once. */
static void sizes(void)
{
    const genesis_memory_tier tiers[] = {{64, 1000}, {128, 500}};
    genesis_memory_manager_options options = {.struct_size = sizeof options};
    options.memory.kind = GENESIS_MEMORY_KIND_PINNED;
    options.tiers = tiers;
    options.tier_count = sizeof tiers / sizeof tiers[0];
    options.arena_bytes = 1 << 20;
    genesis_memory_manager *manager = NULL;
    require(genesis_memory_manager_create(&options, &manager) == GENESIS_STATUS_SUCCESS);
    void *small = genesis_memory_manager_allocate(manager, 100, 0);
    void *large = genesis_memory_manager_allocate(manager, 10000, 0);
    require(small != NULL && large != NULL);
    genesis_memory_manager_free(manager, small);
    genesis_memory_manager_free(manager, large);
    genesis_memory_manager_destroy(manager);
}

int main(void)
{
    steps(NULL);
    requests();
    sizes();
    return 0;
}
