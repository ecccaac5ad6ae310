/* Host memory, pageable and pinned: handed out, reused, counted, given back. */
#include "check.h"

static const int KINDS[] = {GENESIS_HOST_KIND_PAGEABLE, GENESIS_HOST_KIND_PINNED};

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static genesis_stats host_stats_of(int kind)
{
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_host_stats_get(kind, &stats));
    return stats;
}

static unsigned char *host_block_of(size_t size, int kind)
{
    unsigned char *block = (unsigned char *)genesis_host_malloc(size, kind);
    CHECK(block != NULL);
    CHECK((uintptr_t)block % ALIGNMENT == 0);
    return block;
}

static void memory_is_reused(int kind)
{
    const genesis_stats before = host_stats_of(kind);
    unsigned char *small = host_block_of(1000, kind);
    unsigned char *large = host_block_of(3 * MIB, kind);
    fill(small, 1000, 1);
    fill(large, 3 * MIB, 2);
    CHECK(is_filled(small, 1000, 1));
    genesis_stats now = host_stats_of(kind);
    CHECK(now.requested_bytes.current == before.requested_bytes.current + 1000 + 3 * MIB);
    CHECK(now.allocations == before.allocations + 2);
    CHECK(now.reserved_bytes.current >= now.allocated_bytes.current);
    genesis_host_free(large);
    const genesis_stats cached = host_stats_of(kind);
    unsigned char *again = host_block_of(3 * MIB, kind);
    CHECK(again == large);
    now = host_stats_of(kind);
    CHECK(now.driver_memory_calls == cached.driver_memory_calls);
    CHECK(now.hits == cached.hits + 1);
    CHECK(is_filled(again, 3 * MIB, 2));
    genesis_host_free(again);
    genesis_host_free(small);
    CHECK_OK(genesis_host_cache_empty(kind));
    now = host_stats_of(kind);
    CHECK(now.reserved_bytes.current == 0 && now.allocations == now.frees);
    CHECK(now.reserved_bytes.peak >= 3 * MIB);
    CHECK_OK(genesis_host_stats_reset_peak(kind));
    CHECK(host_stats_of(kind).reserved_bytes.peak == 0);
}

static void memory_goes_back_at_once(int kind)
{
    unsigned char *kept = host_block_of(30 * MIB, kind);
    unsigned char *block = host_block_of(30 * MIB, kind);
    genesis_host_free(kept);
    const genesis_stats before = host_stats_of(kind);
    CHECK_OK(genesis_host_release(block));
    CHECK(host_stats_of(kind).reserved_bytes.current ==
          before.reserved_bytes.current - before.allocated_bytes.current);
    CHECK(host_block_of(30 * MIB, kind) == kept);
    genesis_host_free(kept);
    CHECK_OK(genesis_host_cache_empty(kind));
}

static void misuse_is_reported(int kind)
{
    unsigned char here[512];
    unsigned char *block = host_block_of(100, kind);
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_host_release(here));
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_host_free(block + 1));
    /* Neither allocator frees the other's blocks. */
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_free(block, 0, NULL));
    unsigned char *of_device = block_of(100, NULL);
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_host_free(of_device));
    genesis_free(of_device, 0, NULL);
    genesis_host_free(block);
    CHECK_REPORTS(GENESIS_STATUS_DOUBLE_FREE, genesis_host_free(block));
    CHECK_MESSAGE("already free");
    const genesis_stats stats = host_stats_of(kind);
    CHECK(stats.allocations == stats.frees);
}

static void requests_that_cannot_be_served(int kind)
{
    genesis_last_error_clear();
    CHECK(genesis_host_malloc(0, kind) == NULL);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_host_malloc(SIZE_MAX, kind));
    const genesis_stats before = host_stats_of(kind);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_host_malloc((size_t)1 << 46, kind));
    CHECK_MESSAGE(kind == GENESIS_HOST_KIND_PINNED ? "pinned host memory: out of memory: requested"
                                                   : "pageable host memory: out of memory: requ");
    CHECK(host_stats_of(kind).out_of_memory_events == before.out_of_memory_events + 1);
    genesis_host_free(host_block_of(100, kind));
}

int main(void)
{
    CHECK_OK(genesis_option_set("GENESIS_HOST_POOL_TYPE", "Caching"));
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    for (size_t index = 0; index < LENGTH(KINDS); index++) {
        memory_is_reused(KINDS[index]);
        memory_goes_back_at_once(KINDS[index]);
        misuse_is_reported(KINDS[index]);
        requests_that_cannot_be_served(KINDS[index]);
    }
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_malloc(1, 2));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_cache_empty(-1));
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    return 0;
}
