/*
 * Nanoseconds of a call of arenas and fixed-size pools through the C ABI, beside what has the same
 * promise: std::pmr's resources, and mimalloc if its library is found. All in one process, in turn,
 * several times over; the least is kept, because other work on the machine only adds.
 *
 * bump: 1000 requests of one size, then everything is freed at once. Per request.
 * pair: one block is taken and put back. Per pair.
 * many: 1000 blocks are live, and one at random is replaced. Per replacement.
 * mixed: the same, and the new one is of the size or of half of it, at random.
 * call: a function of another library that returns a constant. No C interface costs less.
 *
 * With WITH_RMM defined, RMM's resources too: their own code, over memory of the process. They
 * record an event at each free, which a driver must answer: a real one, or its stand-in.
 */
#include <genesis/memory_resource.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <limits>
#include <memory_resource>
#include <string>
#include <vector>

#ifdef WITH_RMM
#include <cuda_runtime_api.h>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#endif

namespace {

constexpr int REQUESTS = 1000;
constexpr std::size_t ALIGNMENT = 16;

/* How often each measurement is made; 1 to see that the program works. */
int rounds = 21;
int repeats = 200;

/* Keeps the compiler from leaving out what makes `pointer`. */
inline void use(void *pointer)
{
    asm volatile("" : : "g"(pointer) : "memory");
}

/* The least nanoseconds of `calls` calls in `body`, each. */
double least(int calls, const std::function<void()> &body)
{
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round < rounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        for (int repeat = 0; repeat < repeats; ++repeat) {
            body();
        }
        const std::chrono::duration<double, std::nano> spent =
            std::chrono::steady_clock::now() - start;
        best = std::min(best, spent.count() / repeats / calls);
    }
    return best;
}

void row(const char *what, std::size_t size, const char *who, double nanoseconds)
{
    std::printf("%-6s %6zu B  %-46s %8.2f ns\n", what, size, who, nanoseconds);
}

/* 1000 requests by `take`, then `end`. */
template <typename Take, typename End>
void bump(const char *who, std::size_t size, Take take, End end)
{
    row("bump", size, who, least(REQUESTS, [&] {
            for (int n = 0; n < REQUESTS; ++n) {
                use(take(size));
            }
            end();
        }));
}

/* Pairs, and replacements among many. */
template <typename Take, typename Give>
void pairs(const char *who, std::size_t size, Take take, Give give)
{
    row("pair", size, who, least(REQUESTS, [&] {
            for (int n = 0; n < REQUESTS; ++n) {
                void *block = take(size);
                use(block);
                give(block, size);
            }
        }));
    std::vector<void *> live(REQUESTS);
    for (void *&block : live) {
        block = take(size);
    }
    unsigned random = 1;
    row("many", size, who, least(REQUESTS, [&] {
            for (int n = 0; n < REQUESTS; ++n) {
                random = random * 1664525u + 1013904223u;
                void *&block = live[(random >> 16) % REQUESTS];
                give(block, size);
                block = take(size);
                use(block);
            }
        }));
    for (void *block : live) {
        give(block, size);
    }
}

/* Replacements among many, by blocks of two sizes. */
template <typename Take, typename Give>
void mixed(const char *who, std::size_t size, Take take, Give give)
{
    struct block {
        void *memory;
        std::size_t size;
    };
    std::vector<block> live(REQUESTS);
    for (block &each : live) {
        each = {take(size), size};
    }
    unsigned random = 1;
    row("mixed", size, who, least(REQUESTS, [&] {
            for (int n = 0; n < REQUESTS; ++n) {
                random = random * 1664525u + 1013904223u;
                block &each = live[(random >> 16) % REQUESTS];
                give(each.memory, each.size);
                each.size = size >> ((random >> 15) & 1);
                each.memory = take(each.size);
                use(each.memory);
            }
        }));
    for (const block &each : live) {
        give(each.memory, each.size);
    }
}

/* Takes and gives as the C interface does: by a call that is not inlined. */
__attribute__((noinline)) void *allocate_behind_a_call(std::pmr::memory_resource *resource,
                                                       std::size_t bytes, std::size_t alignment)
{
    return resource->allocate(bytes, alignment);
}

/* What a call costs that does nothing: this one returns an address of the C++ library. */
void empty_calls()
{
    row("call", 0, "an empty function of another library", least(REQUESTS, [] {
            for (int n = 0; n < REQUESTS; ++n) {
                use(std::pmr::new_delete_resource());
            }
        }));
}

void arenas(std::size_t size)
{
    for (const bool any_thread : {false, true}) {
        genesis_memory_use memory = genesis::memory::pageable();
        memory.any_thread = any_thread ? 1 : 0;
        genesis::arena arena(memory);
        genesis_arena *handle = arena.get();
        bump(
            any_thread ? "genesis_arena, any thread" : "genesis_arena", size,
            [&](std::size_t bytes) { return genesis_arena_allocate(handle, bytes, ALIGNMENT); },
            [&] { (void)genesis_arena_reset(handle); });
    }
    std::vector<char> memory(REQUESTS * (size + ALIGNMENT));
    std::pmr::monotonic_buffer_resource monotonic(memory.data(), memory.size());
    std::pmr::memory_resource *resource = &monotonic;
    asm volatile("" : "+r"(resource));
    bump(
        "std::pmr::monotonic_buffer_resource", size,
        [&](std::size_t bytes) { return resource->allocate(bytes, ALIGNMENT); },
        [&] { monotonic.release(); });
    auto *const allocate = &allocate_behind_a_call;
    bump(
        "std::pmr::monotonic_buffer_resource, called", size,
        [&](std::size_t bytes) { return allocate(resource, bytes, ALIGNMENT); },
        [&] { monotonic.release(); });
}

void fixed_pools(std::size_t size)
{
    for (const bool any_thread : {false, true}) {
        genesis_memory_use memory = genesis::memory::pageable();
        memory.any_thread = any_thread ? 1 : 0;
        genesis::fixed_pool pool(size, REQUESTS + 1, 0, memory, ALIGNMENT);
        genesis_fixed_pool *handle = pool.get();
        pairs(
            any_thread ? "genesis_fixed_pool, any thread" : "genesis_fixed_pool", size,
            [&](std::size_t) { return genesis_fixed_pool_allocate(handle); },
            [&](void *block, std::size_t) { (void)genesis_fixed_pool_free(handle, block); });
    }
    for (const bool any_thread : {false, true}) {
        genesis_memory_use memory = genesis::memory::pageable();
        memory.any_thread = any_thread ? 1 : 0;
        genesis::memory_manager manager({{size / 2, REQUESTS}, {size, REQUESTS + 1}}, 1 << 20,
                                        memory);
        genesis_memory_manager *handle = manager.get();
        const char *const who =
            any_thread ? "genesis_memory_manager, any thread" : "genesis_memory_manager";
        const auto take = [&](std::size_t bytes) {
            return genesis_memory_manager_allocate(handle, bytes, 0);
        };
        const auto give = [&](void *block, std::size_t) {
            (void)genesis_memory_manager_free(handle, block);
        };
        pairs(who, size, take, give);
        mixed(who, size, take, give);
    }
}

void pmr_pool(const char *who, std::size_t size, std::pmr::memory_resource *resource)
{
    asm volatile("" : "+r"(resource));
    const auto take = [&](std::size_t bytes) { return resource->allocate(bytes, ALIGNMENT); };
    const auto give = [&](void *block, std::size_t bytes) {
        resource->deallocate(block, bytes, ALIGNMENT);
    };
    pairs(who, size, take, give);
    mixed(who, size, take, give);
}

/* The first library that is found; MIMALLOC_LIBRARY names one as well. */
void mimalloc(std::size_t size)
{
    const char *named = std::getenv("MIMALLOC_LIBRARY");
    void *library = named != nullptr ? dlopen(named, RTLD_NOW) : nullptr;
    for (const char *name : {"libmimalloc.so", "libmimalloc.so.3", "libmimalloc.so.2"}) {
        library = library == nullptr ? dlopen(name, RTLD_NOW) : library;
    }
    if (library == nullptr) {
        std::printf("pair   %6zu B  mimalloc: not found (MIMALLOC_LIBRARY names it)\n", size);
        return;
    }
    const auto take = reinterpret_cast<void *(*)(std::size_t)>(dlsym(library, "mi_malloc"));
    const auto give = reinterpret_cast<void (*)(void *)>(dlsym(library, "mi_free"));
    const auto allocate = [&](std::size_t bytes) { return take(bytes); };
    const auto deallocate = [&](void *block, std::size_t) { give(block); };
    pairs("mimalloc", size, allocate, deallocate);
    mixed("mimalloc", size, allocate, deallocate);
}

#ifdef WITH_RMM

/* Where RMM's resources have their memory from. */
class process_memory final : public rmm::mr::device_memory_resource {
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
    {
        return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    }
    void do_deallocate(void *memory, std::size_t, rmm::cuda_stream_view) override
    {
        std::free(memory);
    }
};

void rmm_resource(const char *who, std::size_t size, rmm::mr::device_memory_resource &resource)
{
    cudaStream_t stream = nullptr;
    RMM_CUDA_TRY(cudaStreamCreate(&stream));
    const rmm::cuda_stream_view view(stream);
    pairs(
        who, size, [&](std::size_t bytes) { return resource.allocate(bytes, view); },
        [&](void *block, std::size_t bytes) { resource.deallocate(block, bytes, view); });
}

void rmm_resources(std::size_t size)
{
    process_memory memory;
    rmm::mr::fixed_size_memory_resource<process_memory> fixed(&memory, size, REQUESTS + 1);
    rmm_resource("rmm::mr::fixed_size_memory_resource", size, fixed);
    rmm::mr::binning_memory_resource<process_memory> binning(&memory);
    binning.add_bin(size / 2);
    binning.add_bin(size);
    rmm_resource("rmm::mr::binning_memory_resource", size, binning);
}

#else

void rmm_resources(std::size_t) {}

#endif

} // namespace

int main(int count, char **arguments)
{
    if (count > 1 && std::string(arguments[1]) == "--smoke") {
        rounds = repeats = 1;
    }
    empty_calls();
    for (const std::size_t size : {64, 1024}) {
        arenas(size);
        fixed_pools(size);
        std::pmr::unsynchronized_pool_resource unsynchronized;
        pmr_pool("std::pmr::unsynchronized_pool_resource", size, &unsynchronized);
        std::pmr::synchronized_pool_resource synchronized;
        pmr_pool("std::pmr::synchronized_pool_resource", size, &synchronized);
        mimalloc(size);
        rmm_resources(size);
    }
    return 0;
}
