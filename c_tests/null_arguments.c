/* Every function with NULL in every place that takes a pointer: an error, or fine; no crash. */
#include "check.h"

#define REFUSES_NULL(call) CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, call)

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static void all_of_them(void)
{
    genesis_block_info info;
    char text[64];
    memset(&info, 0xaa, sizeof info);

    genesis_free(NULL, 0, 0, NULL);
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_block_record_stream(NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_block_info_get(NULL, &info));
    CHECK(is_filled((unsigned char *)&info, sizeof info, 0xaa));
    REFUSES_NULL(genesis_block_info_get(NULL, NULL));
    REFUSES_NULL(genesis_block_info_get(&info, NULL));
    REFUSES_NULL(genesis_out_of_memory_callback_add(NULL, NULL, NULL));
    REFUSES_NULL(genesis_device_count_get(NULL));
    REFUSES_NULL(genesis_device_name_get(0, NULL, 0));
    REFUSES_NULL(genesis_device_name_get(0, NULL, 64));
    REFUSES_NULL(genesis_device_name_get(0, text, 0));
    REFUSES_NULL(genesis_backend_get(NULL));
    REFUSES_NULL(genesis_option_set(NULL, NULL));
    REFUSES_NULL(genesis_option_get(NULL, NULL, 0));
    REFUSES_NULL(genesis_option_get("GENESIS_LOG", NULL, 0));
    REFUSES_NULL(genesis_memory_limit_get(0, NULL));
    REFUSES_NULL(genesis_memory_fraction_get(0, NULL));
    REFUSES_NULL(genesis_cache_limit_get(0, NULL));
    REFUSES_NULL(genesis_stats_get(0, NULL));
    REFUSES_NULL(genesis_forecast_get(0, NULL));
    REFUSES_NULL(genesis_memory_optimize(0, NULL));
    REFUSES_NULL(genesis_pool_stats_get(0, GENESIS_POOL_ALL, NULL));
    REFUSES_NULL(genesis_largest_allocations_get(0, 0, NULL, 0, NULL));
    REFUSES_NULL(genesis_largest_allocations_get(0, 0, &info, 1, NULL));
    CHECK(is_filled((unsigned char *)&info, sizeof info, 0xaa));
    size_t count = 7;
    REFUSES_NULL(genesis_largest_allocations_get(0, 0, NULL, 1, &count));
    CHECK(count == 7);

    uint64_t generation = 7;
    REFUSES_NULL(genesis_tag_push(NULL));
    REFUSES_NULL(genesis_tag_push_with(NULL, 0));
    REFUSES_NULL(genesis_tag_pause(NULL, 1));
    REFUSES_NULL(genesis_tag_pause_with(NULL, 1, 0));
    REFUSES_NULL(genesis_tag_backup_get(NULL, 1, NULL));
    REFUSES_NULL(genesis_tag_resume(NULL));
    REFUSES_NULL(genesis_block_pause(NULL));
    REFUSES_NULL(genesis_block_resume(NULL));
    REFUSES_NULL(genesis_tag_generation_get(NULL, &generation));
    REFUSES_NULL(genesis_tag_generation_get("weights", NULL));
    CHECK(generation == 7);

    genesis_host_free(NULL);
    CHECK_OK(genesis_host_release(NULL));
    CHECK_OK(genesis_block_release(NULL));
    REFUSES_NULL(genesis_host_stats_get(GENESIS_HOST_KIND_PAGEABLE, NULL));
    REFUSES_NULL(genesis_host_memory_limit_get(GENESIS_HOST_KIND_PAGEABLE, NULL));
    REFUSES_NULL(genesis_host_cache_limit_get(GENESIS_HOST_KIND_PAGEABLE, NULL));
    REFUSES_NULL(genesis_dlpack_host_buffer_create(1, GENESIS_HOST_KIND_PAGEABLE, NULL));
    CHECK(genesis_host_is_pinned(NULL) == 0);
    CHECK_OK(genesis_host_record_stream(NULL, NULL));
    REFUSES_NULL(genesis_torch_pinned_install(NULL, 14, NULL));
    void *unnamed = genesis_malloc_named(512, 0, NULL, NULL, NULL);
    CHECK(unnamed != NULL);
    CHECK_OK(genesis_block_release(unnamed));

    void *tensor = NULL;
    genesis_cupy_free(NULL, NULL, 0);
    REFUSES_NULL(genesis_onnxruntime_functions_get(0, NULL));
    genesis_dlpack_buffer_release(NULL);
    genesis_dlpack_capsule_destroy(NULL);
    CHECK(genesis_dlpack_buffer_data_get(NULL) == NULL);
    REFUSES_NULL(genesis_dlpack_buffer_create(1, 0, NULL, NULL));
    REFUSES_NULL(genesis_dlpack_tensor_create(NULL, 2, 32, 1, 0, NULL, 0, &tensor));
    CHECK(tensor == NULL);

    REFUSES_NULL(genesis_profile_write(NULL));
    REFUSES_NULL(genesis_snapshot_write(NULL));
    REFUSES_NULL(genesis_plan_write(NULL));
    REFUSES_NULL(genesis_range_push(NULL));
    REFUSES_NULL(genesis_mark_add(NULL));

    CHECK_OK(genesis_memory_info_get(0, NULL, NULL));
    CHECK_OK(genesis_cache_trim(0, 0, NULL));
    CHECK_OK(genesis_garbage_collect(0, NULL));
    CHECK_OK(genesis_memory_compact(0, NULL));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    all_of_them();
    void *block = block_of(100, STREAM(0));
    all_of_them();
    genesis_free(block, 0, STREAM(0));
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    return 0;
}
