/* A thread whose current context is destroyed, or that has none, frees memory of two streams. */
#include <pthread.h>

#include "simcuda.h"

int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxDestroy_v2(void *context);

static genesis_stream stream, other;
static int has_destroyed_context;

/* To be destroyed takes a context off the stack once: it stays current if it lies there twice. */
static void enter(void)
{
    void *context;
    if (has_destroyed_context) {
        CHECK_CUDA(cuCtxCreate_v2(&context, 0, 0));
        CHECK_CUDA(cuCtxPushCurrent_v2(context));
        CHECK_CUDA(cuCtxDestroy_v2(context));
    }
}

static void *free_block(void *block)
{
    enter();
    genesis_free(block, 0, stream);
    return NULL;
}

static void *allocate_block(void *unused)
{
    (void)unused;
    enter();
    return block_of(MIB, stream);
}

static void *on_a_thread(void *(*act)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, act, argument) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}

/* An event for the other stream is recorded and asked about, though such a thread may do neither
 * without help. */
static void the_block_comes_back_once_the_other_stream_is_done(void)
{
    unsigned char *block = block_of(MIB, stream);
    CHECK_OK(genesis_block_record_stream(block, other));
    CHECK(can_use(0, other, block, MIB, 1));
    on_a_thread(free_block, block);
    unsigned char *early = on_a_thread(allocate_block, NULL);
    CHECK(early != block);
    CHECK(simcuda_advance(0, other, EVERYTHING) >= 0);
    unsigned char *late = on_a_thread(allocate_block, NULL);
    CHECK(late == block);
    CHECK(can_use(0, stream, late, MIB, 1));
    CHECK_CUDA(cudaDeviceSynchronize());
    genesis_free(early, 0, stream);
    genesis_free(late, 0, stream);
}

int main(void)
{
    CHECK_CUDA(simcuda_set("SIMCUDA_PROGRESS", "manual"));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, 1));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, 1));
    /* Naive's frees wait for the device instead. */
    for (has_destroyed_context = 0; has_destroyed_context <= 1; has_destroyed_context++) {
        if (!strategy_is("Naive")) {
            the_block_comes_back_once_the_other_stream_is_done();
        }
    }
    CHECK(stats_of(0).requested_bytes.current == 0);
    return 0;
}
