/*
 * Memory that is freed while work is queued on it, as MXNet 2's asynchronous engine does: the
 * handle brings events. Compiled against MXNet's headers where there are CUDA's, and against a
 * statement of the same interface (interface/) where there are not. On simcuda, with streams that
 * stand still and its race detector.
 */
#include "check.hpp"

extern "C" {
int64_t simcuda_advance(int device, cudaStream_t stream, int64_t operations);
int64_t simcuda_check();
void simcuda_violations_clear();
int simcuda_touch(int device, cudaStream_t stream, uint64_t address, size_t bytes, int writes);
}

namespace {

using Handle = mxnet::Storage::Handle;

/* Context::GPU would ask libmxnet.so about CUDA. */
mxnet::Context first_gpu()
{
    mxnet::Context context;
    context.dev_type = mxnet::Context::kGPU;
    context.dev_id = 0;
    return context;
}

const mxnet::Context GPU = first_gpu();
const size_t BLOCK_BYTES = 16 * MIB;
const int EVERYTHING = 1000;

cudaStream_t one;
cudaStream_t two;

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)

std::shared_ptr<cudaEvent_t> recorded_on(cudaStream_t stream)
{
    cudaEvent_t event = nullptr;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, 2));
    CHECK_CUDA(cudaEventRecord(event, stream));
    return std::shared_ptr<cudaEvent_t>(new cudaEvent_t(event), [](cudaEvent_t *made) {
        CHECK_CUDA(cudaEventDestroy(*made));
        delete made;
    });
}

void write_on(cudaStream_t stream, const Handle &handle)
{
    CHECK(simcuda_touch(0, stream, reinterpret_cast<uint64_t>(handle.dptr), handle.size, 1) == 0);
}

/* A block with work queued on it, and the event behind that. */
Handle busy_block(mxnet::Storage &storage, std::shared_ptr<cudaEvent_t> &event, size_t size)
{
    Handle handle = storage.Alloc(size, GPU);
    write_on(one, handle);
    event = recorded_on(one);
    handle.sync_obj.events.push_back(event);
    return handle;
}

void memory_waits_for_its_events(mxnet::Storage &storage)
{
    std::shared_ptr<cudaEvent_t> event;
    const Handle busy = busy_block(storage, event, BLOCK_BYTES);
    storage.Free(busy);
    Handle other = storage.Alloc(BLOCK_BYTES, GPU);
    CHECK(other.dptr != busy.dptr);
    write_on(two, other);
    /* To look was no error. */
    CHECK_CUDA(cudaGetLastError());
    CHECK(simcuda_advance(0, one, EVERYTHING) > 0);
    Handle again = storage.Alloc(BLOCK_BYTES, GPU);
    CHECK(again.dptr == busy.dptr);
    write_on(two, again);
    CHECK(simcuda_check() == 0);
    CHECK_CUDA(cudaDeviceSynchronize());
    storage.Free(other);
    storage.Free(again);
}

/* A thread that captures a graph may free memory and ask for some. */
void a_capture_is_not_spoilt(mxnet::Storage &storage)
{
    std::shared_ptr<cudaEvent_t> event;
    storage.Free(storage.Alloc(MIB, GPU));
    const Handle busy = busy_block(storage, event, BLOCK_BYTES);
    cudaGraph_t graph = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(two, cudaStreamCaptureModeThreadLocal));
    storage.Free(busy);
    storage.Free(storage.Alloc(MIB, GPU));
    CHECK_CUDA(cudaStreamEndCapture(two, &graph));
    CHECK_CUDA(cudaDeviceSynchronize());
}

/* Without its events, as 1.x has it, memory is taken to be idle: here it is not. */
void memory_without_events_is_taken_to_be_idle(mxnet::Storage &storage)
{
    std::shared_ptr<cudaEvent_t> event;
    Handle busy = busy_block(storage, event, BLOCK_BYTES);
    busy.sync_obj.events.clear();
    storage.Free(busy);
    Handle again = storage.Alloc(BLOCK_BYTES, GPU);
    CHECK(again.dptr == busy.dptr);
    write_on(two, again);
    /* Naive gives it back to the driver, which waits for the device. */
    CHECK((simcuda_check() > 0) == !strategy_is("Naive"));
    simcuda_violations_clear();
    CHECK_CUDA(cudaDeviceSynchronize());
    storage.Free(again);
}

/* The program's own destroyed events stand for nothing any more. */
void events_that_are_gone_are_complete(mxnet::Storage &storage)
{
    std::shared_ptr<cudaEvent_t> event;
    const Handle idle = busy_block(storage, event, BLOCK_BYTES);
    CHECK_CUDA(cudaDeviceSynchronize());
    event.reset();
    storage.Free(idle);
    CHECK(storage.Alloc(BLOCK_BYTES, GPU).dptr == idle.dptr);
    storage.Free(idle);
}

/* The device has 100 MiB. */
void a_request_waits_before_it_fails(mxnet::Storage &storage)
{
    std::shared_ptr<cudaEvent_t> event;
    storage.ReleaseAll(GPU);
    const Handle busy = busy_block(storage, event, 80 * MIB);
    storage.Free(busy);
    const Handle next = storage.Alloc(80 * MIB, GPU);
    CHECK(next.dptr != nullptr);
    write_on(two, next);
    CHECK(storage.Alloc(80 * MIB, GPU, true).dptr == nullptr);
    CHECK(simcuda_check() == 0);
    CHECK_CUDA(cudaDeviceSynchronize());
    storage.Free(next);
}

void giving_back_waits(mxnet::Storage &storage)
{
    std::shared_ptr<cudaEvent_t> event;
    storage.ReleaseAll(GPU);
    storage.Free(busy_block(storage, event, BLOCK_BYTES));
    storage.ReleaseAll(GPU);
    CHECK(stats_of(0).reserved_bytes.current == 0);
    storage.DirectFree(busy_block(storage, event, BLOCK_BYTES));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    CHECK(simcuda_check() == 0);
}

} // namespace

int main()
{
    const unsigned non_blocking = 1;
    CHECK_CUDA(cudaStreamCreateWithFlags(&one, non_blocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&two, non_blocking));
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
    genesis::mxnet::storage storage;
    memory_waits_for_its_events(storage);
    if (!strategy_is("Naive")) {
        a_capture_is_not_spoilt(storage);
    }
    memory_without_events_is_taken_to_be_idle(storage);
    events_that_are_gone_are_complete(storage);
    a_request_waits_before_it_fails(storage);
    giving_back_waits(storage);
    CHECK(stats_of(0).allocations == stats_of(0).frees);
    return 0;
}
