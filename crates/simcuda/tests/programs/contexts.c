/* Contexts, streams that are given again, rights of copies, captures and resets, on two devices
   with streams that stand still: SIMCUDA_DEVICES=2, SIMCUDA_PROGRESS=manual. */
#include "simcuda.h"

#include <pthread.h>

typedef struct { uint32_t type, handle_types; struct { uint32_t type; int id; } location; void *win32; uint8_t flags[8]; } properties_t;
typedef struct { struct { uint32_t type; int id; } location; uint32_t flags; } access_t;

enum { CONTEXT_IS_DESTROYED = 709, PEER_ALREADY = 704, IMPLICIT = 906, INVALIDATED = 901 };
static const size_t GRANULE = (size_t)2 << 20;

static void *primary[2];
static int called;

static void on_stream(void *data) { called += *(int *)data; }

static void contexts_are_made_and_destroyed(void) {
    void *second, *third, *current, *of_stream;
    uint64_t ids[4];
    stream_t stream;
    event_t event;
    address_t address;
    int device;
    OK(cuCtxCreate_v2, &second, 0, 1);
    OK(cuCtxGetCurrent, &current);
    EXPECT(second, current);
    OK(cuCtxGetDevice, &device);
    EXPECT(1, device);
    OK(cuCtxCreate_v4, &third, NULL, 0, 1);
    OK(cuCtxGetId, primary[1], &ids[0]);
    OK(cuCtxGetId, second, &ids[1]);
    OK(cuCtxGetId, NULL, &ids[2]);
    EXPECT(1, ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    OK(cuStreamCreate, &stream, 1u);
    OK(cuStreamGetCtx, stream, &of_stream);
    EXPECT(third, of_stream);
    OK(cuEventCreate, &event, 2u);
    OK(cuMemAlloc_v2, &address, GRANULE);
    OK(cuMemsetD8Async, address, 1, (size_t)8, stream);

    /* A wait is for the current context. */
    OK(cuCtxSetCurrent, second);
    OK(cuCtxSynchronize);
    EXPECT(NOT_READY, CALL(cuStreamQuery, stream));
    OK(cuStreamGetCtx, NULL, &of_stream);
    EXPECT(second, of_stream);
    OK(cuStreamGetDevice, stream, &device);
    EXPECT(1, device);

    /* Events are recorded at home and waited for everywhere. */
    EXPECT(INVALID_HANDLE, CALL(cuEventRecord, event, (stream_t)0));
    OK(cuEventRecord, event, stream);
    OK(cuStreamWaitEvent, (stream_t)0, event, 0u);
    EXPECT(NOT_READY, CALL(cuEventQuery, event));
    OK(cuMemFree_v2, address);
    OK(cuEventQuery, event);

    OK(cuCtxDestroy_v2, third);
    EXPECT(INVALID_HANDLE, CALL(cuEventQuery, event));
    EXPECT(CONTEXT_IS_DESTROYED, CALL(cuCtxSetCurrent, third));
    EXPECT(INVALID_VALUE, CALL(cuCtxDestroy_v2, primary[0]));
    OK(cuCtxDestroy_v2, second);
    OK(cuCtxGetCurrent, &current);
    EXPECT(second, current); /* it lay on the stack twice */
    EXPECT(CONTEXT_IS_DESTROYED, CALL(cuCtxSynchronize));
    OK(cuCtxSetCurrent, primary[0]);
    EXPECT(0, LONG(simcuda_census, "streams"));
    EXPECT(0, LONG(simcuda_census, "allocations"));
}

static void handles_are_given_again(void) {
    stream_t first, second;
    uint64_t old, new, defaults[2];
    int data = 7;
    address_t address;
    OK(cuMemAlloc_v2, &address, GRANULE);
    OK(cuStreamCreate, &first, 1u);
    OK(cuStreamGetId, first, &old);
    OK(cuStreamGetId, NULL, &defaults[0]);
    OK(cuStreamGetId, (stream_t)2, &defaults[1]);
    OK(cuMemsetD8Async, address, 1, (size_t)8, first);
    OK(cuLaunchHostFunc, first, on_stream, &data);
    OK(cuStreamDestroy_v2, first);
    OK(cuStreamCreate, &second, 1u);
    EXPECT(first, second);
    OK(cuStreamGetId, second, &new);
    EXPECT(1, old != new && new != defaults[0] && new != defaults[1] && defaults[0] != defaults[1]);
    /* The new stream is idle, the old one's work and its host function are not done. */
    OK(cuStreamQuery, second);
    EXPECT(0, called);
    OK(cuMemsetD8Async, address, 2, (size_t)8, second);
    EXPECT(1, LONG(simcuda_check));
    CALL(simcuda_violations_clear);
    OK(cuStreamDestroy_v2, second);
    EXPECT(INVALID_HANDLE, CALL(cuStreamDestroy_v2, second));
    CALL(simcuda_violations_clear);
    OK(cuCtxSynchronize);
    EXPECT(7, called);
}

static void copies_need_rights(void) {
    properties_t properties = { .type = 1, .location = { 1, 0 } };
    access_t access = { { 1, 0 }, 3 };
    address_t mapped, plain, own;
    uint64_t handle;
    OK(cuMemAddressReserve, &mapped, GRANULE, (size_t)0, (address_t)0, (uint64_t)0);
    OK(cuMemCreate, &handle, GRANULE, &properties, (uint64_t)0);
    OK(cuMemMap, mapped, GRANULE, (size_t)0, handle, (uint64_t)0);
    OK(cuMemSetAccess, mapped, GRANULE, &access, (size_t)1);
    OK(cuMemAlloc_v2, &plain, GRANULE);
    OK(cuCtxSetCurrent, primary[1]);
    OK(cuMemAlloc_v2, &own, GRANULE);
    EXPECT(INVALID_VALUE, CALL(cuMemcpyDtoDAsync_v2, own, plain, (size_t)8, (stream_t)0));
    OK(cuCtxEnablePeerAccess, primary[0], 0u);
    EXPECT(PEER_ALREADY, CALL(cuCtxEnablePeerAccess, primary[0], 0u));
    OK(cuMemcpyDtoDAsync_v2, own, plain, (size_t)8, (stream_t)0);
    EXPECT(1, LONG(simcuda_check));
    /* Peer access does nothing for mapped memory, and a peer copy does without. */
    EXPECT(INVALID_VALUE, CALL(cuMemcpyDtoDAsync_v2, own, mapped, (size_t)8, (stream_t)0));
    EXPECT(INVALID_VALUE, CALL(cuMemcpyAsync, mapped, own, (size_t)8, (stream_t)0));
    EXPECT(3, LONG(simcuda_check));
    OK(cuMemcpyPeerAsync, own, primary[1], mapped, primary[0], (size_t)8, (stream_t)0);
    OK(cuMemcpyPeer, own, primary[1], mapped, primary[0], (size_t)8);
    access.location.id = 1;
    OK(cuMemSetAccess, mapped, GRANULE, &access, (size_t)1);
    OK(cuMemcpyDtoDAsync_v2, own, mapped, (size_t)8, (stream_t)0);
    EXPECT(3, LONG(simcuda_check));
    CALL(simcuda_violations_clear);
    OK(cuCtxSynchronize);
    OK(cuMemFree_v2, own);
    OK(cuCtxSetCurrent, primary[0]);
}

static void *wait_elsewhere(void *argument) {
    int *answers = argument;
    stream_t other;
    OK(cuCtxSetCurrent, primary[0]);
    OK(cuStreamCreate, &other, 1u);
    answers[0] = CALL(cuCtxSynchronize);
    answers[1] = CALL(cuStreamSynchronize, other);
    OK(cuStreamDestroy_v2, other);
    OK(cuCtxSetCurrent, primary[1]);
    answers[2] = CALL(cuCtxSynchronize);
    return NULL;
}

static void captures_forbid_waits_by_device(void) {
    stream_t stream;
    uint64_t graph;
    address_t address;
    int answers[3], relaxed = 2;
    OK(cuStreamCreate, &stream, 1u);
    OK(cuMemAlloc_v2, &address, (size_t)512);
    for (int mode = 0; mode < 3; mode++) {
        pthread_t thread;
        OK(cuStreamBeginCapture_v2, stream, mode);
        pthread_create(&thread, NULL, wait_elsewhere, answers);
        pthread_join(thread, NULL);
        EXPECT(CAPTURE_UNSUPPORTED, answers[0]);
        EXPECT(IMPLICIT, answers[1]);
        EXPECT(0, answers[2]);
        EXPECT(INVALIDATED, CALL(cuStreamEndCapture, stream, &graph));
    }
    OK(cuThreadExchangeStreamCaptureMode, &relaxed);
    OK(cuStreamBeginCapture_v2, stream, 0);
    EXPECT(CAPTURE_UNSUPPORTED, CALL(cuMemFree_v2, address));
    EXPECT(INVALIDATED, CALL(cuStreamEndCapture, stream, &graph));
    OK(cuThreadExchangeStreamCaptureMode, &relaxed);
    OK(cuMemFree_v2, address);
    OK(cuStreamDestroy_v2, stream);
}

static void resets_give_addresses_back(void) {
    address_t first, again;
    stream_t stream, other;
    int flags, active;
    OK(cuDevicePrimaryCtxReset_v2, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    EXPECT(0, active);
    EXPECT(0, LONG(simcuda_census, "used_bytes"));
    EXPECT(0, LONG(simcuda_census, "reserved_bytes"));
    OK(cuMemAlloc_v2, &first, GRANULE);
    OK(cuStreamCreate, &stream, 1u);
    OK(cuDevicePrimaryCtxReset_v2, 0);
    EXPECT(INVALID_HANDLE, CALL(cuStreamQuery, stream));
    CALL(simcuda_violations_clear);
    OK(cuStreamCreate, &other, 1u);
    EXPECT(stream, other);
    OK(cuMemAlloc_v2, &again, GRANULE);
    EXPECT(first, again);
}

int main(void) {
    open_driver();
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &primary[0], 0);
    OK(cuDevicePrimaryCtxRetain, &primary[1], 1);
    OK(cuCtxSetCurrent, primary[0]);
    contexts_are_made_and_destroyed();
    handles_are_given_again();
    copies_need_rights();
    captures_forbid_waits_by_device();
    resets_give_addresses_back();
    EXPECT(0, LONG(simcuda_check));
    EXPECT(0, ((const char *(*)(void))find("simcuda_validate"))());
    return 0;
}
