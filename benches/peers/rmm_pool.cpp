// RMM's pool over plain device memory, grown from nothing: the pool doubles when it must.
//
// RMM has no `record_stream`, so a program that needs it cannot be replayed. The pool returns no
// memory before it is destroyed, so emptying the cache does nothing.
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include <genesis.h>

namespace {

using Memory = rmm::mr::cuda_memory_resource;
using Pool = rmm::mr::pool_memory_resource<Memory>;

// Never destroyed: a program ends with blocks still live.
Pool *pool;

struct Peer {
    static constexpr const char *name = "RMM pool";
    static constexpr const char *version = PEER_VERSION;

    static void start() {
        int device_count = 0;
        RMM_CUDA_TRY(cudaGetDeviceCount(&device_count));
        pool = new Pool(new Memory, 0);
    }

    static void *allocate(size_t bytes, cudaStream_t stream) {
        return pool->allocate(bytes, stream);
    }

    static void release(void *block, size_t bytes, cudaStream_t stream) {
        pool->deallocate(block, bytes, stream);
    }

    static genesis_status record_stream(void *, cudaStream_t) {
        return GENESIS_STATUS_NOT_SUPPORTED;
    }

    static void empty_cache() {}

    // The pool says only how much it holds now.
    static genesis_status own_statistics(genesis_stats &) { return GENESIS_STATUS_NOT_SUPPORTED; }
    static genesis_status reset_own_peak() { return GENESIS_STATUS_NOT_SUPPORTED; }
    static genesis_status limit(size_t) { return GENESIS_STATUS_NOT_SUPPORTED; }
};

}  // namespace

#include "face.hpp"
