/* genesis_stream_wait: work queued later waits for work queued earlier on another stream. */
#include "simcuda.h"

static int is_idle(genesis_stream stream)
{
    const int code = cudaStreamQuery(stream);
    CHECK(code == 0 || code == CUDA_ERROR_NOT_READY);
    return code == 0;
}

/* Streams stand still until they are told to go on, and then go as far as they may. */
static void run(genesis_stream stream)
{
    CHECK(simcuda_advance(0, stream, EVERYTHING) >= 0);
}

static void later_work_waits_for_earlier_work(genesis_stream stream, genesis_stream other)
{
    unsigned char *block = block_of(MIB, other);
    CHECK_OK(genesis_block_record_stream(block, stream));
    CHECK(can_use(0, other, block, MIB, 1));
    CHECK_OK(genesis_stream_wait(0, stream, other));
    /* In order behind the wait: the race detector has nothing to report. */
    CHECK(can_use(0, stream, block, MIB, 1));
    CHECK(!is_idle(stream) && !is_idle(other));
    run(stream);
    CHECK(!is_idle(stream));
    run(other);
    CHECK(is_idle(other));
    run(stream);
    CHECK(is_idle(stream));
    genesis_free(block, 0, other);
    CHECK_CUDA(cudaDeviceSynchronize());
}

static void without_it_nothing_waits(genesis_stream stream, genesis_stream other)
{
    unsigned char *block = block_of(MIB, other);
    unsigned char *own = block_of(MIB, stream);
    CHECK(can_use(0, other, block, MIB, 1));
    CHECK(can_use(0, stream, own, MIB, 1));
    run(stream);
    CHECK(is_idle(stream) && !is_idle(other));
    CHECK_CUDA(cudaDeviceSynchronize());
    genesis_free(own, 0, stream);
    genesis_free(block, 0, other);
}

/* What is queued after the call is not waited for. */
static void work_queued_afterwards_is_not_waited_for(genesis_stream stream, genesis_stream other)
{
    unsigned char *block = block_of(MIB, other);
    CHECK_OK(genesis_stream_wait(0, stream, other));
    /* The wait is for an event of the other stream, which stands still as well. */
    run(other);
    CHECK(can_use(0, other, block, MIB, 1));
    run(stream);
    CHECK(is_idle(stream) && !is_idle(other));
    CHECK_CUDA(cudaDeviceSynchronize());
    genesis_free(block, 0, other);
}

int main(void)
{
    CHECK_CUDA(simcuda_set("SIMCUDA_PROGRESS", "manual"));
    CHECK_CUDA(cudaSetDevice(0));
    later_work_waits_for_earlier_work(STREAM(0), STREAM(1));
    without_it_nothing_waits(STREAM(0), STREAM(1));
    work_queued_afterwards_is_not_waited_for(STREAM(0), STREAM(1));
    CHECK_OK(genesis_stream_wait(0, STREAM(0), STREAM(0)));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_stream_wait(9, STREAM(0), STREAM(1)));
    CHECK(stats_of(0).requested_bytes.current == 0);
    return 0;
}
