/* Memory made ready, in C++: a number of bytes before the first step, and a plan of this run for
 * the next one. */
#include <genesis/allocator.hpp>

#include <iostream>
#include <vector>

/* The calls for memory that the driver has had so far. */
unsigned long long memory_calls()
{
    genesis_stats stats = {};
    stats.struct_size = sizeof stats;
    genesis_stats_get(0, &stats);
    return stats.driver_memory_calls;
}

int main()
{
    if (genesis_memory_preallocate(0, std::size_t{256} << 20, nullptr) != GENESIS_STATUS_SUCCESS) {
        std::cerr << genesis_last_error_message_get() << '\n';
        return 1;
    }
    const unsigned long long before = memory_calls();
    {
        std::vector<genesis::buffer> buffers;
        for (int number = 0; number < 20; ++number) {
            buffers.emplace_back(std::size_t{8} << 20);
        }
    }
    std::cout << memory_calls() - before << " calls for memory in the first step\n";
    if (genesis_plan_write("warm_start.plan") != GENESIS_STATUS_SUCCESS) {
        std::cerr << genesis_last_error_message_get() << '\n';
        return 1;
    }
}
