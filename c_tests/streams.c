/* Blocks and streams: reuse on a block's own stream, and blocks that other streams use. */
#include "check.h"

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static void reuse_on_the_own_stream(void)
{
    if (strategy_is("Naive")) {
        return;
    }
    const genesis_stream streams[] = {STREAM(1), LEGACY_STREAM};
    for (unsigned index = 0; index < 2; index++) {
        const genesis_stream stream = streams[index];
        genesis_free(block_of(40000, stream), 40000, 0, stream);
        const genesis_stats before = stats_of(0);
        void *block = block_of(40000, stream);
        const genesis_stats after = stats_of(0);
        CHECK(after.hits == before.hits + 1);
        CHECK(after.driver_memory_calls == before.driver_memory_calls);
        /* The driver is asked which stream a handle means, unless it is a default stream. */
        CHECK(after.driver_calls == before.driver_calls + (stream == LEGACY_STREAM ? 0 : 1));
        genesis_free(block, 40000, 0, stream);
    }
}

static void handles_of_the_default_streams(void)
{
    /* NULL and cudaStreamLegacy are one stream, cudaStreamPerThread is another. */
    genesis_block_info info;
    void *block = block_of(1000, (genesis_stream)(uintptr_t)1);
    CHECK_OK(genesis_block_info_get(block, &info));
    CHECK(info.stream == LEGACY_STREAM);
    genesis_free(block, 0, LEGACY_STREAM);
    block = block_of(1000, (genesis_stream)(uintptr_t)2);
    CHECK_OK(genesis_block_info_get(block, &info));
    CHECK(info.stream == (genesis_stream)(uintptr_t)2);
    genesis_free(block, 0, LEGACY_STREAM);
}

static void recorded_streams(void)
{
    for (int round = 0; round < 20; round++) {
        unsigned char *block = block_of(MIB, STREAM(1));
        fill(block, MIB, (unsigned char)round);
        CHECK_OK(genesis_block_record_stream(block, STREAM(2)));
        CHECK_OK(genesis_block_record_stream(block, STREAM(2)));
        CHECK_OK(genesis_block_record_stream(block, STREAM(1)));
        CHECK_OK(genesis_block_record_stream(block, LEGACY_STREAM));
        for (int stream = 3; stream < 40; stream++) {
            CHECK_OK(genesis_block_record_stream(block, STREAM(stream)));
        }
        CHECK(is_filled(block, MIB, (unsigned char)round));
        genesis_free(block, 0, STREAM(1));
        CHECK(stats_of(0).allocated_bytes.current == 0);
    }
    /* The host's streams are always idle, so all blocks are free once somebody looks. */
    CHECK_OK(genesis_memory_compact(0, NULL));
    CHECK(stats_of(0).active_bytes.current == 0);
    if (!strategy_is("Naive")) {
        CHECK(stats_of(0).reserved_bytes.peak <= 40 * MIB);
    }
}

static void recording_what_is_no_block(void)
{
    unsigned char *block = block_of(4096, STREAM(1));
    int on_stack = 0;
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_block_record_stream(NULL, STREAM(2)));
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER, genesis_block_record_stream(&on_stack, STREAM(2)));
    CHECK_FAILS(GENESIS_STATUS_FOREIGN_POINTER,
                genesis_block_record_stream(block + 512, STREAM(2)));
    genesis_free(block, 4096, 0, STREAM(1));
}

static void many_streams(void)
{
    enum { STREAMS = 200 };
    static unsigned char *blocks[STREAMS];
    for (int round = 0; round < 2; round++) {
        for (int stream = 0; stream < STREAMS; stream++) {
            blocks[stream] = block_of(600, STREAM(stream));
            fill(blocks[stream], 600, (unsigned char)stream);
        }
        for (int stream = 0; stream < STREAMS; stream++) {
            CHECK(is_filled(blocks[stream], 600, (unsigned char)stream));
            genesis_free(blocks[stream], 600, 0, STREAM(stream));
        }
    }
    CHECK(stats_of(0).allocated_bytes.current == 0);
}

int main(void)
{
    /* Elastic's lanes have addresses by the device's memory; under valgrind there are 32 GiB. */
    CHECK_OK(genesis_option_set("GENESIS_SIM_MEMORY", "512MiB"));
    reuse_on_the_own_stream();
    handles_of_the_default_streams();
    recorded_streams();
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    recording_what_is_no_block();
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    many_streams();
    return 0;
}
