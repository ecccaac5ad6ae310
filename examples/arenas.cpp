/* Containers in an arena, a pool for the nodes of a map, and scratch on two streams, in C++. */
#include <genesis/memory_resource.hpp>

#include <iostream>
#include <map>
#include <string>
#include <vector>

int main()
{
    genesis::arena arena(genesis::memory::pageable());
    genesis::pmr_resource<genesis::arena> resource(arena);
    std::size_t letters = 0;
    for (int step = 0; step < 100; ++step) {
        {
            std::pmr::vector<std::pmr::string> words(&resource);
            for (int n = 0; n < 50; ++n) {
                words.emplace_back("a word that is too long for the string itself");
            }
            letters += words.back().size();
        }
        arena.reset();
    }
    std::cout << letters << " letters in " << arena.stats().chunks << " chunk\n";

    genesis::fixed_pool nodes(64, 1000, 0, genesis::memory::pageable());
    genesis::pmr_resource<genesis::fixed_pool> node_resource(nodes);
    std::pmr::map<int, int> squares(&node_resource);
    for (int n = 0; n < 1000; ++n) {
        squares.emplace(n, n * n);
    }
    std::cout << nodes.stats().live_blocks << " nodes\n";

    genesis::arena scratch(genesis::memory::on_device());
    genesis::stream_resource<genesis::arena> device(scratch);
    genesis_stream stream = nullptr; // a cudaStream_t, cuda::stream_ref or rmm::cuda_stream_view
    void *workspace = device.allocate(stream, 1 << 20);
    device.deallocate(stream, workspace, 1 << 20);
    scratch.reset();
}
