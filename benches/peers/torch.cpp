// PyTorch's own allocator, driven without Python; `PYTORCH_ALLOC_CONF` chooses its options,
// expandable segments among them.
//
// A tensor's storage passes `record_stream` the owner of the block (`DataPtr`), by which the
// allocator recognises its own blocks. Here an owner is made for the call and released again, so
// slots hold bare pointers, as they do for all allocators.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <genesis.h>

// Exported, and declared in no header: the full PyTorch registers here its test for a device in
// use.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has_primary_context)(c10::DeviceIndex));
}

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

// Fetched once, so that a call pays no more than PyTorch's own inline functions do.
caching::CUDAAllocator *allocator;

struct Peer {
    static constexpr const char *name = "PyTorch";
    static constexpr const char *version = PEER_VERSION;

    static void start() {
        c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
        caching::init(1);
        allocator = caching::get();
        c10::cuda::set_device(0);
    }

    static void *allocate(size_t bytes, cudaStream_t stream) {
        return allocator->raw_alloc_with_stream(bytes, stream);
    }

    static void release(void *block, size_t, cudaStream_t) { allocator->raw_delete(block); }

    static genesis_status record_stream(void *block, cudaStream_t stream) {
        c10::DataPtr owner(block, block, allocator->raw_deleter(), {c10::kCUDA, 0});
        allocator->recordStream(owner, c10::cuda::getStreamFromExternal(stream, 0));
        owner.release_context();
        return GENESIS_STATUS_SUCCESS;
    }

    static void empty_cache() { allocator->emptyCache(); }

    static genesis_status own_statistics(genesis_stats &stats) {
        // The first of each kind is the sum over small and large blocks.
        const auto known = allocator->getDeviceStats(0);
        stats.reserved_bytes.current = known.reserved_bytes[0].current;
        stats.reserved_bytes.peak = known.reserved_bytes[0].peak;
        stats.driver_calls = known.num_device_alloc + known.num_device_free;
        return GENESIS_STATUS_SUCCESS;
    }

    static genesis_status reset_own_peak() {
        allocator->resetPeakStats(0);
        return GENESIS_STATUS_SUCCESS;
    }

    static genesis_status limit(size_t bytes) {
        size_t free_bytes = 0, total_bytes = 0;
        C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
        const double part = static_cast<double>(bytes) / static_cast<double>(total_bytes);
        allocator->setMemoryFraction(std::min(part, 1.0), 0);
        return GENESIS_STATUS_SUCCESS;
    }
};

}  // namespace

#include "face.hpp"
