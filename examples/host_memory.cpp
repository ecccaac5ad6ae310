// Host memory in C++: a container in pinned memory, and blocks that follow the streams that copy
// from them.
#include <genesis.h>
#include <genesis/memory_resource.hpp>

#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <vector>

// A block of pinned memory that `stream` copies from.
struct used_on {
    genesis_stream stream;

    void operator()(void *block) const
    {
        genesis_host_record_stream(block, stream);
        genesis_host_free(block); // reused once the copies are complete
    }
};

static std::unique_ptr<void, used_on> batch_of(std::size_t size, genesis_stream stream)
{
    void *block = genesis_host_malloc(size, GENESIS_HOST_KIND_PINNED);
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    return {block, used_on{stream}};
}

int main()
{
    genesis_stream stream = nullptr; // a cudaStream_t
    for (int step = 0; step < 100; ++step) {
        auto batch = batch_of(5 << 20, stream);
        std::memset(batch.get(), step, 5 << 20);
        // … cudaMemcpyAsync from batch.get() on the stream …
    }
    genesis_stats stats = {};
    stats.struct_size = sizeof stats;
    genesis_host_stats_get(GENESIS_HOST_KIND_PINNED, &stats);
    std::cout << stats.allocations << " batches, " << stats.hits << " from the pool\n";

    genesis::arena arena(genesis::memory::pinned());
    genesis::pmr_resource<genesis::arena> resource(arena);
    std::pmr::vector<float> weights(1000, 1.0f, &resource);
    std::cout << genesis_host_is_pinned(weights.data()) << '\n';
}
