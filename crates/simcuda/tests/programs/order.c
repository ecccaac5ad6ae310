/* Streams, events, capture and races, with streams that stand still: SIMCUDA_PROGRESS=manual. */
#include "simcuda.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096 };

static stream_t one, two;
static address_t block;
static int called;

static void on_stream(void *data) { called += *(int *)data; }

static void events(void) {
    event_t event;
    OK(cuEventCreate, &event, 2u);
    OK(cuEventQuery, event);
    OK(cuMemsetD8Async, block, 1, (size_t)BYTES, one);
    OK(cuEventRecord, event, one);
    EXPECT(NOT_READY, CALL(cuEventQuery, event));
    EXPECT(NOT_READY, CALL(cuStreamQuery, one));
    EXPECT(1, LONG(simcuda_advance, 0, one, (int64_t)1));
    EXPECT(NOT_READY, CALL(cuEventQuery, event));
    OK(cuStreamWaitEvent, two, event, 0u);
    OK(cuMemsetD8Async, block, 2, (size_t)BYTES, two);
    EXPECT(0, LONG(simcuda_advance, 0, two, (int64_t)9));
    OK(cuStreamSynchronize, two);
    OK(cuEventQuery, event);
    OK(cuEventDestroy_v2, event);
    EXPECT(0, LONG(simcuda_check));
    OK(simcuda_hold, 0, one, 1);
    OK(cuMemsetD8Async, block, 3, (size_t)BYTES, one);
    EXPECT(702, CALL(cuStreamSynchronize, one));
    OK(simcuda_hold, 0, one, 0);
    OK(cuStreamSynchronize, one);
}

static void host_functions(void) {
    int data = 5;
    OK(cuMemsetD8Async, block, 1, (size_t)BYTES, one);
    OK(cuLaunchHostFunc, one, on_stream, &data);
    EXPECT(0, called);
    OK(cuStreamSynchronize, one);
    EXPECT(5, called);
}

static void races(void) {
    char text[4096];
    OK(cuMemsetD8Async, block, 1, (size_t)BYTES, one);
    OK(cuMemcpyDtoHAsync_v2, text, block + 1000, (size_t)8, two);
    EXPECT(1, LONG(simcuda_check));
    size_t length = (size_t)LONG(simcuda_violations, text, sizeof text);
    EXPECT(length, strlen(text));
    EXPECT(1, strstr(text, "cuMemsetD8Async") && strstr(text, "cuMemcpyDtoHAsync_v2"));
    OK(cuCtxSynchronize);
    CALL(simcuda_violations_clear);
    EXPECT(0, LONG(simcuda_check));
}

static void graphs(void) {
    uint64_t graph, executable, id;
    size_t nodes;
    int status;
    OK(cuStreamBeginCapture_v2, one, 1);
    OK(cuMemsetD8Async, block, 1, (size_t)BYTES, one);
    OK(cuStreamGetCaptureInfo_v2, one, &status, &id, NULL, NULL, NULL);
    EXPECT(1, status);
    EXPECT(1, id != 0);
    OK(cuStreamIsCapturing, two, &status);
    EXPECT(0, status);
    OK(cuStreamEndCapture, one, &graph);
    OK(cuGraphGetNodes, graph, NULL, &nodes);
    EXPECT(1, nodes);
    OK(cuGraphInstantiateWithFlags, &executable, graph, (uint64_t)0);
    OK(cuGraphDestroy, graph);
    EXPECT(INVALID_VALUE, CALL(cuGraphDestroy, graph));
    OK(cuGraphLaunch, executable, one);
    OK(cuMemsetD8Async, block, 2, (size_t)BYTES, two);
    EXPECT(1, LONG(simcuda_check));
    OK(cuCtxSynchronize);
    CALL(simcuda_violations_clear);
    OK(cuGraphExecDestroy, executable);
    OK(cuStreamBeginCapture_v2, one, 0);
    EXPECT(CAPTURE_UNSUPPORTED, CALL(cuStreamSynchronize, one));
    OK(cuStreamIsCapturing, one, &status);
    EXPECT(2, status);
    EXPECT(901, CALL(cuStreamEndCapture, one, &graph));
}

/* A kernel known by its C++ name: void scale(float *, float const *, int). */
static void kernels(void) {
    void *module, *function;
    address_t other;
    int count = BYTES / 4;
    OK(cuModuleLoadData, &module, "");
    OK(cuModuleGetFunction, &function, module, "_Z5scalePfPKfi");
    OK(cuMemAlloc_v2, &other, (size_t)BYTES);
    void *arguments[] = { &other, &block, &count };
    OK(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, one, arguments, NULL);
    EXPECT(0, LONG(simcuda_check));
    OK(cuMemsetD8Async, block, 0, (size_t)BYTES, two);
    EXPECT(1, LONG(simcuda_check));
    OK(cuMemFree_v2, other);
    CALL(simcuda_violations_clear);
    EXPECT(INVALID_HANDLE, CALL(cuModuleUnload, (void *)8));
    EXPECT(98, CALL(cuLaunchKernel, (void *)8, 1, 1, 1, 1, 1, 1, 0, one, NULL, NULL));
}

static void freeing_under_work(void) {
    address_t other;
    stream_t fleeting;
    OK(cuMemAllocAsync, &other, (size_t)BYTES, one);
    OK(cuMemsetD8Async, other, 1, (size_t)BYTES, one);
    OK(cuMemFreeAsync, other, one);
    EXPECT(1, LONG(simcuda_census, "pool_blocks"));
    OK(cuCtxSynchronize);
    OK(cuMemAllocAsync, &other, (size_t)BYTES, one);
    OK(cuMemFreeAsync, other, one);
    OK(cuCtxSynchronize);
    void *pool;
    OK(cuDeviceGetDefaultMemPool, &pool, 0);
    OK(cuMemPoolTrimTo, pool, (size_t)0);
    EXPECT(0, LONG(simcuda_census, "pool_blocks"));
    OK(cuMemAllocAsync, &other, (size_t)BYTES, one);
    OK(cuMemFree_v2, other);
    EXPECT(0, LONG(simcuda_census, "pool_blocks"));
    OK(cuStreamCreate, &fleeting, 1u);
    OK(cuStreamDestroy_v2, fleeting);
    EXPECT(INVALID_HANDLE, CALL(cuMemsetD8Async, block, 1, (size_t)1, fleeting));
    CALL(simcuda_violations_clear);
}

static void a_forked_child_has_no_driver(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        address_t address;
        _exit(CALL(cuMemAlloc_v2, &address, (size_t)512) == NOT_INITIALIZED
              && CALL(cuInit, 0) == NOT_INITIALIZED ? 0 : 1);
    }
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, status);
}

int main(void) {
    start(0);
    OK(cuStreamCreate, &one, 1u);
    OK(cuStreamCreate, &two, 1u);
    OK(cuMemAlloc_v2, &block, (size_t)BYTES);
    events();
    host_functions();
    races();
    graphs();
    kernels();
    freeing_under_work();
    a_forked_child_has_no_driver();
    OK(cuMemFree_v2, block);
    OK(cuStreamDestroy_v2, one);
    OK(cuStreamDestroy_v2, two);
    EXPECT(0, LONG(simcuda_check));
    EXPECT(0, LONG(simcuda_census, "used_bytes"));
    EXPECT(0, LONG(simcuda_census, "streams"));
    EXPECT(0, LONG(simcuda_census, "events"));
    return 0;
}
