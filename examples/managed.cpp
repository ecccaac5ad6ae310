/* Two arrays that do not fit together: what is needed next is brought, in C++ (GENESIS_MANAGED). */
#include <genesis.h>

#include <iostream>
#include <stdexcept>

static void bring(void *memory, std::size_t bytes, int device)
{
    const genesis_status status = genesis_managed_prefetch(memory, bytes, device, nullptr);
    if (status != GENESIS_STATUS_SUCCESS) {
        throw std::runtime_error(genesis_last_error_message_get());
    }
}

int main()
{
    std::size_t free_bytes = 0, total_bytes = 0;
    genesis_memory_info_get(0, &free_bytes, &total_bytes);
    const std::size_t bytes = total_bytes / 4 * 3;
    void *weights = genesis_malloc(bytes, 0, nullptr);
    void *activations = genesis_malloc(bytes, 0, nullptr);
    if (weights == nullptr || activations == nullptr) {
        std::cerr << genesis_last_error_message_get() << '\n';
        return 1;
    }
    /* Whoever reads these on the host has them there. */
    genesis_managed_advise(weights, bytes, GENESIS_MANAGED_ADVICE_READ_MOSTLY, 0);
    for (int step = 0; step < 3; ++step) {
        bring(activations, bytes, -1);
        bring(weights, bytes, 0);
        /* … kernels … */
    }
    genesis_stats stats = {};
    stats.struct_size = sizeof stats;
    genesis_stats_get(0, &stats);
    std::cout << (stats.oversubscribed_bytes >> 20) << " MiB beyond the device\n";
    genesis_free(activations, 0, nullptr);
    genesis_free(weights, 0, nullptr);
}
