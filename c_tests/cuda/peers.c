/* genesis_peer_access_enable: a device that only reads may access another one's memory. */
#include "simcuda.h"

enum { READER = 1, UNASKED = 2, DEVICES = 3 };

static genesis_stream streams[DEVICES];

/* From here on the device is in use, which memory that is mapped later takes into account. */
static void use(int device)
{
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&streams[device], 1));
}

static int can_read(int device, void *block)
{
    return can_use(device, streams[device], block, 4 * MIB, 0);
}

static void access_is_given_once_and_for_all(void)
{
    unsigned char *before = block_of(4 * MIB, streams[0]);
    use(READER);
    use(UNASKED);
    CHECK(can_read(0, before));
    CHECK(!can_read(READER, before));
    CHECK_OK(genesis_peer_access_enable(0, READER));
    CHECK(can_read(READER, before));
    CHECK(!can_read(UNASKED, before));
    /* Again it does nothing, and what is mapped from now on can be accessed as well. */
    CHECK_OK(genesis_peer_access_enable(0, READER));
    unsigned char *after = block_of(256 * MIB, streams[0]);
    CHECK(can_read(READER, after));
    genesis_free(after, 0, streams[0]);
    genesis_free(before, 0, streams[0]);
}

static void misuse_is_reported(void)
{
    CHECK_OK(genesis_peer_access_enable(0, 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_peer_access_enable(0, DEVICES));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_peer_access_enable(-1, READER));
}

int main(void)
{
    CHECK_CUDA(simcuda_set("SIMCUDA_DEVICES", "3"));
    use(0);
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
    if (strategy_is("Elastic")) {
        access_is_given_once_and_for_all();
        misuse_is_reported();
    } else {
        genesis_free(block_of(4 * MIB, streams[0]), 0, streams[0]);
        CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, genesis_peer_access_enable(0, READER));
    }
    return 0;
}
