/* Tags: memory that is paused and resumed by name, and access for other devices. */
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
    CHECK_OK(genesis_peer_access_enable(0, 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_peer_access_enable(0, 1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_peer_access_enable(-1, 0));
}

static void others_have_none(void)
{
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_tag_push("weights"));
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_tag_pause("weights", 1));
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_tag_resume("weights"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_tag_pop());
    CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_peer_access_enable(0, 0));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    if (strategy_is("Elastic")) {
        contents_are_kept();
        misuse_is_reported();
    } else {
        others_have_none();
    }
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    return 0;
}
