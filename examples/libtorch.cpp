/*
 * libtorch on Genesis's memory: a C++ program that trains a little, and prints statistics of the
 * memory.
 *
 * A program needs only use_genesis() of this file. Call it before the first tensor on a GPU;
 * PyTorch's allocator can be chosen once a process.
 *
 * docs/libtorch.md has the commands that build and run it.
 */
#include <genesis.h>
#include <genesis/allocator.hpp>

#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

namespace {

namespace pluggable = torch::cuda::CUDAPluggableAllocator;

/* Returns memory for a tensor, or throws: PyTorch would use NULL as if it were memory. */
void *allocate(size_t size, int device, cudaStream_t stream)
{
    void *block = genesis_malloc(size, device, stream);
    if (block == nullptr && size != 0) {
        const char *message = genesis_last_error_message_get();
        if (genesis_last_error_get() == GENESIS_STATUS_OUT_OF_MEMORY) {
            C10_THROW_ERROR(OutOfMemoryError, message);
        }
        C10_THROW_ERROR(Error, message);
    }
    return block;
}

void release(void *block, size_t size, int device, cudaStream_t stream)
{
    genesis_free(block, size, device, stream);
}

/* Makes Genesis libtorch's allocator, with every hook of PyTorch's plug. */
void use_genesis()
{
    auto plug = std::make_shared<pluggable::CUDAPluggableAllocator>(allocate, release);
    plug->set_init_fn(genesis_torch_init);
    plug->set_reset_fn(genesis_torch_reset);
    plug->set_memory_fraction_fn(genesis_torch_memory_fraction_set);
    plug->set_base_alloc_fn(genesis_torch_base_get);
    plug->set_record_stream_fn(genesis_torch_record_stream);
#ifdef GENESIS_HAS_TORCH_POOLS
    using pool_id = std::pair<unsigned long long, unsigned long long>;
    plug->set_begin_allocate_to_pool(
        [](int device, pool_id pool, std::function<bool(cudaStream_t)> filter) {
            genesis_torch_pool_begin(device, pool.first, pool.second, &filter);
        });
    plug->set_end_allocate_to_pool_fn([](int device, pool_id pool) {
        genesis_torch_pool_end(device, pool.first, pool.second);
    });
    plug->set_release_pool([](int device, pool_id pool) {
        genesis_torch_pool_release(device, pool.first, pool.second);
    });
#endif
    pluggable::changeCurrentAllocator(plug);
}

/* Stops the program unless `holds`. */
void expect(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

/* A few steps of linear regression. */
void train()
{
    const auto options = torch::dtype(torch::kFloat32).device(torch::kCUDA);
    auto weights = torch::randn({1024, 1024}, options.requires_grad(true));
    for (int step = 0; step < 10; step++) {
        auto batch = torch::ones({256, 1024}, options);
        auto loss = batch.matmul(weights).pow(2).mean();
        loss.backward();
        torch::NoGradGuard no_grad;
        weights -= weights.grad() * 0.01;
        weights.mutable_grad().reset();
    }
}

/* Releases a tensor while another stream still uses it. */
void hand_over()
{
    const auto options = torch::dtype(torch::kUInt8).device(torch::kCUDA);
    auto batch = torch::zeros({64 << 20}, options);
    const auto side = c10::cuda::getStreamFromPool();
    batch.record_stream(side.unwrap());
    batch.reset();
    genesis_stats stats = genesis::stats();
    expect(stats.active_bytes.current >= (64u << 20), "the block waits for the other stream");
}

/* A request that does not fit throws PyTorch's own exception, and the next one is served. */
void run_short_of_memory()
{
    const auto options = torch::dtype(torch::kUInt8).device(torch::kCUDA);
    try {
        torch::empty({int64_t{1} << 50}, options);
        expect(false, "1 PiB cannot be had");
    } catch (const c10::OutOfMemoryError &error) {
        std::printf("as expected: %s\n", error.what_without_backtrace());
    }
    torch::empty({1 << 20}, options);
}

} // namespace

int main()
{
    use_genesis();
    train();
    hand_over();
    run_short_of_memory();
    const genesis_stats stats = genesis::stats();
    expect(stats.allocations > 20 && stats.hits > 0, "Genesis served the tensors");
    std::printf("%llu requests, %.1f %% of them from the cache, at most %zu KiB reserved\n",
                static_cast<unsigned long long>(stats.allocations), 100 * stats.hit_rate,
                static_cast<std::size_t>(stats.reserved_bytes.peak >> 10));
    return 0;
}
