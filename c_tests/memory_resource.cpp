/* genesis/memory_resource.hpp: objects as values, and both kinds of resource over them. */
#include "check.h"

#include <genesis/memory_resource.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

template <typename Object> void containers_live_in(Object &object)
{
    genesis::pmr_resource<Object> resource(object);
    {
        std::pmr::vector<std::pmr::string> words(&resource);
        std::pmr::map<int, std::pmr::string> numbered(&resource);
        for (int n = 0; n < 100; ++n) {
            words.emplace_back("a text that is too long to be stored within the string itself");
            numbered.emplace(n, words.back());
        }
        CHECK(words.size() == 100 && numbered.at(99) == words.front());
    }
    const genesis::pmr_resource<Object> same(object);
    CHECK(resource == same);
    CHECK(resource != *std::pmr::new_delete_resource());
}

void pmr()
{
    genesis::arena arena(genesis::memory::pageable());
    for (int step = 0; step < 3; ++step) {
        containers_live_in(arena);
        arena.reset();
    }
    CHECK(arena.stats().resets == 3);
    genesis::memory_manager manager({{64, 300}, {128, 300}}, 1 << 20, genesis::memory::pinned());
    containers_live_in(manager);
    CHECK(manager.stats().pool_blocks == 0 && manager.stats().arena_blocks == 0);
    genesis::fixed_pool pool(64, 200, 0, genesis::memory::pageable());
    genesis::pmr_resource<genesis::fixed_pool> nodes(pool);
    {
        std::pmr::map<int, int> tree(&nodes);
        for (int n = 0; n < 200; ++n) {
            tree.emplace(n, n);
        }
        bool is_full = false;
        try {
            tree.emplace(200, 200);
        } catch (const std::bad_alloc &) {
            is_full = true;
        }
        CHECK(is_full && tree.size() == 200);
    }
    CHECK(pool.stats().live_blocks == 0 && pool.stats().peak_live_blocks == 200);
}

/* As cuda::stream_ref and as rmm::cuda_stream_view name a stream. */
struct stream_ref {
    genesis_stream stream;
    genesis_stream get() const { return stream; }
};
struct stream_view {
    genesis_stream stream;
    genesis_stream value() const { return stream; }
};

template <typename Object> void streams_use(Object &object)
{
    genesis::stream_resource<Object> resource(object);
    void *a = resource.allocate(STREAM(0), 500);
    void *b = resource.allocate(stream_ref{STREAM(1)}, 500, 256);
    void *c = resource.allocate_async(500, 256, stream_view{STREAM(2)});
    void *d = resource.allocate_sync(500);
    CHECK(a != b && b != c && c != d);
    for (void *block : {a, b, c, d}) {
        CHECK(reinterpret_cast<std::uintptr_t>(block) % 256 == 0);
        memset(block, 1, 500);
    }
    resource.deallocate(STREAM(0), a, 500);
    resource.deallocate(stream_ref{STREAM(1)}, b, 500, 256);
    resource.deallocate_async(c, 500, 256, stream_view{STREAM(2)});
    resource.deallocate_sync(d, 500);
    genesis::stream_resource<Object> same(object);
    CHECK(resource == same && !(resource != same));
}

void stream_ordered()
{
    const genesis_memory_use use = genesis::memory::on_device(0, STREAM(0));
    genesis::arena arena(genesis::memory::for_any_thread(use));
    streams_use(arena);
    arena.reset();
    genesis::fixed_pool pool(512, 4, 0, use);
    streams_use(pool);
    CHECK(pool.stats().live_blocks == 0);
    genesis::memory_manager manager({{512, 2}}, 1 << 16, use);
    streams_use(manager);
    CHECK(manager.stats().pool_blocks == 0);
}

void objects_are_values()
{
    genesis::arena arena(genesis::memory::pageable(), 4096, 1 << 20);
    genesis::arena moved = std::move(arena);
    void *first = nullptr;
    for (int step = 0; step < 3; ++step) {
        genesis::arena_scope scope(moved);
        void *block = moved.allocate(1000, 64);
        CHECK(first == nullptr || block == first);
        first = block;
    }
    CHECK(moved.stats().used_bytes == 0);
    CHECK(moved.allocate(0) != nullptr);
    genesis_status status = GENESIS_STATUS_SUCCESS;
    try {
        (void)moved.allocate(std::size_t{1} << 30);
    } catch (const genesis::out_of_memory &error) {
        status = error.status();
    }
    CHECK(status == GENESIS_STATUS_LIMIT_REACHED);
    const genesis_arena_position position = moved.mark();
    moved.reset();
    try {
        moved.rewind(position);
        CHECK(!"a mark that has ended");
    } catch (const genesis::error &error) {
        CHECK(error.status() == GENESIS_STATUS_INVALID_ARGUMENT);
    }
    genesis::fixed_pool pool(64, 1, 0, genesis::memory::pageable());
    try {
        (void)pool.allocate(65);
        CHECK(!"a block that is too small");
    } catch (const std::bad_alloc &) {
    }
}

} // namespace

int main()
{
    pmr();
    stream_ordered();
    objects_are_values();
    return 0;
}
