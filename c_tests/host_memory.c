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

static void limits_hold(int kind)
{
    size_t bytes = 1;
    CHECK_OK(genesis_host_memory_limit_get(kind, &bytes));
    CHECK(bytes == 0);
    CHECK_OK(genesis_host_memory_limit_set(kind, 10 * MIB));
    CHECK_OK(genesis_host_memory_limit_get(kind, &bytes));
    CHECK(bytes == 10 * MIB);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_host_malloc(11 * MIB, kind));
    CHECK_FAILS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_host_preallocate(kind, 11 * MIB, 0));
    CHECK_OK(genesis_host_memory_limit_set(kind, 0));
    genesis_host_free(host_block_of(11 * MIB, kind));
    CHECK_OK(genesis_host_cache_limit_set(kind, 0));
    CHECK_OK(genesis_host_cache_limit_get(kind, &bytes));
    CHECK(bytes == 0 && host_stats_of(kind).reserved_bytes.current == 0);
    genesis_host_free(host_block_of(11 * MIB, kind));
    CHECK(host_stats_of(kind).reserved_bytes.current == 0);
    CHECK_OK(genesis_host_cache_limit_set(kind, SIZE_MAX));
    CHECK_OK(genesis_host_cache_limit_get(kind, &bytes));
    CHECK(bytes == SIZE_MAX);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_memory_limit_get(kind, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_cache_limit_get(kind, NULL));
}

static void memory_is_taken_beforehand(int kind)
{
    for (int in_background = 0; in_background < 2; in_background++) {
        CHECK_OK(genesis_host_preallocate(kind, 24 * MIB, in_background));
        CHECK_OK(genesis_host_preallocate(kind, 16 * MIB, in_background));
        CHECK_OK(genesis_host_preallocate_wait());
        const genesis_stats before = host_stats_of(kind);
        CHECK(before.reserved_bytes.current == 40 * MIB);
        unsigned char *large = host_block_of(24 * MIB, kind);
        unsigned char *other = host_block_of(16 * MIB, kind);
        CHECK(host_stats_of(kind).driver_memory_calls == before.driver_memory_calls);
        fill(large, 24 * MIB, 3);
        CHECK(is_filled(large, 24 * MIB, 3));
        genesis_host_free(large);
        genesis_host_free(other);
        CHECK_OK(genesis_host_cache_empty(kind));
    }
    CHECK_OK(genesis_host_memory_limit_set(kind, MIB));
    CHECK_OK(genesis_host_preallocate(kind, 24 * MIB, 1));
    CHECK_FAILS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_host_preallocate_wait());
    CHECK_OK(genesis_host_preallocate_wait());
    CHECK_OK(genesis_host_memory_limit_set(kind, 0));
}

static void pinned_memory_is_known(int kind)
{
    const int is_pinned = kind == GENESIS_HOST_KIND_PINNED;
    int here = 0;
    CHECK(!genesis_host_is_pinned(NULL) && !genesis_host_is_pinned(&here));
    unsigned char *small = host_block_of(100, kind);
    unsigned char *large = host_block_of(3 * MIB, kind);
    CHECK(genesis_host_is_pinned(small) == is_pinned);
    CHECK(genesis_host_is_pinned(large + 3 * MIB - 1) == is_pinned);
    CHECK_OK(genesis_host_record_stream(NULL, NULL));
    CHECK_OK(genesis_host_record_stream(small, NULL));
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_host_record_stream(&here, NULL));
    genesis_host_free(small);
    genesis_host_free(large);
    if (is_pinned) {
        CHECK_FAILS(GENESIS_STATUS_DOUBLE_FREE, genesis_host_record_stream(large, NULL));
    }
    CHECK_OK(genesis_host_cache_empty(kind));
    CHECK(!genesis_host_is_pinned(large));
}

static void buffers_are_blocks(int kind)
{
    const genesis_stats before = host_stats_of(kind);
    genesis_dlpack_buffer *buffer = NULL;
    CHECK_OK(genesis_dlpack_host_buffer_create(5000, kind, &buffer));
    CHECK(host_stats_of(kind).requested_bytes.current == before.requested_bytes.current + 5000);
    CHECK(genesis_host_is_pinned(genesis_dlpack_buffer_data_get(buffer)) ==
          (kind == GENESIS_HOST_KIND_PINNED));
    CHECK_OK(genesis_dlpack_buffer_record_stream(buffer, NULL));
    genesis_dlpack_buffer_release(buffer);
    CHECK(host_stats_of(kind).requested_bytes.current == before.requested_bytes.current);
    CHECK_OK(genesis_dlpack_host_buffer_create(0, kind, &buffer));
    CHECK(genesis_dlpack_buffer_data_get(buffer) == NULL);
    genesis_dlpack_buffer_release(buffer);
    CHECK_OK(genesis_host_cache_empty(kind));
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
        limits_hold(KINDS[index]);
        memory_is_taken_beforehand(KINDS[index]);
        pinned_memory_is_known(KINDS[index]);
        buffers_are_blocks(KINDS[index]);
    }
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_malloc(1, 2));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_cache_empty(-1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_host_preallocate(2, MIB, 1));
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    return 0;
}
