/* Tags: memory that is limited, paused and resumed by name, and access for other devices. */
#include "check.h"

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static unsigned char *tagged_block(const char *tag, size_t size, unsigned char value)
{
    CHECK_OK(genesis_tag_push(tag));
    unsigned char *block = block_of(size, STREAM(1));
    CHECK_OK(genesis_tag_pop());
    fill(block, size, value);
    return block;
}

static uint64_t generation_of(const char *tag)
{
    uint64_t generation = UINT64_MAX;
    CHECK_OK(genesis_tag_generation_get(tag, &generation));
    return generation;
}

static void contents_are_kept(void)
{
    const size_t size = 5 * MIB;
    unsigned char *weights = tagged_block("weights", size, 17);
    unsigned char *more = tagged_block("weights", 300, 18);
    unsigned char *other = block_of(size, STREAM(1));
    fill(other, size, 19);
    const uint64_t generation = generation_of("weights");
    const genesis_stats before = stats_of(0);
    CHECK_OK(genesis_tag_pause("weights", 1));
    CHECK_OK(genesis_tag_pause("weights", 1));
    const genesis_stats paused = stats_of(0);
    CHECK(paused.reserved_bytes.current + size <= before.reserved_bytes.current);
    CHECK(paused.requested_bytes.current == before.requested_bytes.current);
    CHECK(is_filled(other, size, 19));
    CHECK(generation_of("weights") == generation);
    CHECK_OK(genesis_tag_resume("weights"));
    CHECK_OK(genesis_tag_resume("weights"));
    CHECK(generation_of("weights") == generation + 1);
    CHECK(is_filled(weights, size, 17) && is_filled(more, 300, 18));

    CHECK_OK(genesis_tag_pause("weights", 0));
    genesis_free(more, 0, STREAM(1));
    CHECK_REPORTS(GENESIS_STATUS_DOUBLE_FREE, genesis_free(more, 0, STREAM(1)));
    CHECK_OK(genesis_tag_resume("weights"));
    fill(weights, size, 20);
    CHECK(is_filled(weights, size, 20));
    genesis_free(weights, 0, STREAM(1));
    genesis_free(other, 0, STREAM(1));
    CHECK(stats_of(0).requested_bytes.current == 0);
}

static void every_backup_keeps_contents(void)
{
    const genesis_backup backups[] = {GENESIS_BACKUP_PINNED, GENESIS_BACKUP_PAGEABLE,
                                      GENESIS_BACKUP_DISK};
    const size_t size = 3 * MIB;
    for (int kind = 0; kind < 3; kind++) {
        CHECK_OK(genesis_tag_push_with("kinds", backups[kind]));
        unsigned char *block = block_of(size, STREAM(1));
        CHECK_OK(genesis_tag_pop());
        fill(block, size, 30);
        CHECK_OK(genesis_tag_pause_with("", -1, 0));
        void *kept = block;
        CHECK_OK(genesis_tag_backup_get(block + 1000, size - 1000, &kept));
        CHECK((kept == NULL) == (backups[kind] == GENESIS_BACKUP_DISK));
        CHECK(kept == NULL || is_filled((unsigned char *)kept, size - 1000, 30));
        CHECK_OK(genesis_tags_resume());
        CHECK(is_filled(block, size, 30));
        genesis_free(block, 0, STREAM(1));
    }
}

/* How far a pause or resume is, as it was last told. */
struct progress {
    size_t calls;
    size_t done_bytes;
    size_t total_bytes;
};

static void note_progress(void *user_data, size_t done_bytes, size_t total_bytes)
{
    struct progress *progress = (struct progress *)user_data;
    CHECK(progress->calls == 0 ? done_bytes == 0 : done_bytes >= progress->done_bytes);
    CHECK(progress->calls == 0 || total_bytes == progress->total_bytes);
    /* It may call functions of the library, except those that pause and resume. */
    CHECK_FAILS(GENESIS_STATUS_BUSY, genesis_tag_pause("progress", 1));
    progress->calls += 1;
    progress->done_bytes = done_bytes;
    progress->total_bytes = total_bytes;
}

static void progress_is_told(void)
{
    const size_t size = 5 * MIB;
    unsigned char *block = tagged_block("progress", size, 31);
    for (int is_resume = 0; is_resume < 2; is_resume++) {
        struct progress progress;
        memset(&progress, 0, sizeof progress);
        CHECK_OK(genesis_progress_callback_set(note_progress, &progress));
        if (is_resume) {
            CHECK_OK(genesis_tag_resume("progress"));
        } else {
            CHECK_OK(genesis_tag_pause("progress", 1));
        }
        CHECK_OK(genesis_progress_callback_set(NULL, NULL));
        CHECK(progress.calls >= 2 && progress.total_bytes >= size);
        CHECK(progress.done_bytes == progress.total_bytes);
    }
    CHECK(is_filled(block, size, 31));
    genesis_free(block, 0, STREAM(1));
}

static void a_block_alone_is_paused(void)
{
    CHECK_OK(genesis_tag_push("alone"));
    void *block = genesis_malloc_alone(3 * MIB, 0, STREAM(1));
    void *other = block_of(MIB, STREAM(1));
    CHECK_OK(genesis_tag_pop());
    genesis_block_info info;
    CHECK_OK(genesis_block_info_get(block, &info));
    CHECK(info.allocated_bytes == 4 * MIB && info.requested_bytes == 4 * MIB);
    const uint64_t before = stats_of(0).reserved_bytes.current;
    for (int time = 0; time < 2; time++) {
        CHECK_OK(genesis_block_pause(block));
    }
    CHECK(stats_of(0).reserved_bytes.current == before - 4 * MIB);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_block_pause(other));
    for (int time = 0; time < 2; time++) {
        CHECK_OK(genesis_block_resume(block));
    }
    CHECK(stats_of(0).reserved_bytes.current == before);
    fill((unsigned char *)block, 3 * MIB, 30);
    CHECK_OK(genesis_block_pause(block));
    CHECK_OK(genesis_block_release(block));
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_block_resume(block));
    genesis_free(other, 0, STREAM(1));
    CHECK(genesis_malloc_alone(0, 0, STREAM(1)) == NULL);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, genesis_malloc_alone(1, -1, STREAM(1)));
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_malloc_alone(SIZE_MAX, 0, STREAM(1)));
}

struct sum {
    const char *tag;
    size_t visits;
    genesis_tag_usage usage;
};

static void add_usage(void *user_data, const genesis_tag_usage *usage)
{
    struct sum *sum = (struct sum *)user_data;
    if (strcmp(usage->tag, sum->tag) == 0) {
        sum->visits += 1;
        sum->usage = *usage;
    }
}

static genesis_tag_usage usage_of(const char *tag)
{
    struct sum sum;
    memset(&sum, 0, sizeof sum);
    sum.tag = tag;
    CHECK_OK(genesis_tags_visit(0, add_usage, &sum));
    CHECK(sum.visits == 1 && sum.usage.device == 0);
    return sum.usage;
}

static void limits_are_kept(void)
{
    CHECK_OK(genesis_tag_limit_set("task", -1, 8 * MIB));
    CHECK(usage_of("task").limit_bytes == 8 * MIB);
    CHECK_OK(genesis_tag_push("task"));
    void *held = block_of(4 * MIB, STREAM(1));
    CHECK_OK(genesis_tag_push("within"));
    void *inner = block_of(4 * MIB, STREAM(1));
    CHECK_REPORTS(GENESIS_STATUS_LIMIT_REACHED, genesis_malloc(1, 0, STREAM(1)));
    CHECK_MESSAGE("tag=\"task\"");
    CHECK_MESSAGE("limit_bytes=8388608 (8.00 MiB)");
    CHECK_OK(genesis_tag_pop());
    CHECK_OK(genesis_tag_pop());
    CHECK(usage_of("task").live_bytes == 8 * MIB && usage_of("task").live_blocks == 2);
    CHECK(usage_of("within").live_bytes == 4 * MIB);
    CHECK(usage_of("within").limit_bytes == SIZE_MAX);
    CHECK(usage_of("task").refusals == 1 && usage_of("within").refusals == 0);
    void *other = block_of(64 * MIB, STREAM(1));
    genesis_free(other, 0, STREAM(1));
    genesis_free(inner, 0, STREAM(1));
    CHECK_OK(genesis_tag_limit_set("task", 0, SIZE_MAX));
    CHECK(usage_of("task").limit_bytes == SIZE_MAX);
    genesis_free(held, 0, STREAM(1));
    CHECK(usage_of("task").live_bytes == 0 && usage_of("within").live_blocks == 0);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_limit_set("", 0, 1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_limit_set(NULL, 0, 1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tags_visit(0, NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_tag_limit_set("task", 1000, 1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_tags_visit(1000, add_usage, NULL));
}

static void limits_of_pools_are_kept(void)
{
    const genesis_pool_id pool = {7, 9};
    genesis_pool_usage usage;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_limit_set(0, pool, MIB));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_usage_get(0, pool, &usage));
    CHECK_OK(genesis_private_pool_hold(0, pool, 0));
    CHECK_OK(genesis_private_pool_limit_set(0, pool, MIB));
    CHECK_OK(genesis_private_pool_usage_get(0, pool, &usage));
    CHECK(usage.limit_bytes == MIB && usage.reserved_bytes == 0 && usage.live_bytes == 0);
    CHECK_OK(genesis_private_pool_begin(0, pool));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_begin(0, pool));
    CHECK_REPORTS(GENESIS_STATUS_LIMIT_REACHED, genesis_malloc(8 * MIB, 0, STREAM(1)));
    CHECK_OK(genesis_private_pool_limit_set(0, pool, 8 * MIB));
    void *inside = block_of(8 * MIB, STREAM(1));
    CHECK_OK(genesis_private_pool_usage_get(0, pool, &usage));
    CHECK(usage.reserved_bytes == 8 * MIB && usage.live_bytes == 8 * MIB && usage.refusals == 1);
    genesis_free(inside, 0, STREAM(1));
    CHECK_OK(genesis_private_pool_end(0, pool));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_end(0, pool));
    CHECK_OK(genesis_private_pool_release(0, pool));
    CHECK_OK(genesis_private_pool_limit_set(0, pool, SIZE_MAX));
    CHECK_OK(genesis_private_pool_usage_get(0, pool, &usage));
    CHECK(usage.limit_bytes == SIZE_MAX);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_private_pool_usage_get(0, pool, NULL));
    CHECK_OK(genesis_private_pool_release(0, pool));
}

static void misuse_is_reported(void)
{
    uint64_t generation = 7;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_push(""));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_pop());
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_pause("wieghts", 1));
    CHECK_MESSAGE("\"weights\"");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_resume("wieghts"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_generation_get("", &generation));
    CHECK(generation == 7);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_push_with("weights", 4));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_pause_with("weights", -2, 0));
    genesis_pool_id nobodys = {1, 2};
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_tag_set(0, nobodys, "weights", GENESIS_BACKUP_PINNED));
    CHECK_OK(genesis_peer_access_enable(0, 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_peer_access_enable(0, 1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_peer_access_enable(-1, 0));
}

static void others_have_none(void)
{
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_tag_pause("weights", 1));
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_tag_resume("weights"));
    void *block = block_of(MIB, STREAM(1));
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_block_pause(block));
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_block_resume(block));
    genesis_free(block, 0, STREAM(1));
    CHECK_REPORTS(GENESIS_STATUS_NOT_SUPPORTED, genesis_malloc_alone(MIB, 0, STREAM(1)));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_pop());
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_peer_access_enable(0, 0));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    limits_are_kept();
    limits_of_pools_are_kept();
    if (strategy_is("Elastic")) {
        contents_are_kept();
        every_backup_keeps_contents();
        a_block_alone_is_paused();
        progress_is_told();
        misuse_is_reported();
    } else {
        others_have_none();
    }
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    return 0;
}
