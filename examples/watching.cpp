/* The fragmentation watch and forecasts, in C++: a program that leaks a little in each step. */
#include <genesis.h>

#include <iostream>

int main()
{
    double steps_left = 0;
    genesis_option_set("GENESIS_COMPACT_ABOVE", "0.3");
    genesis_forecast_callback_set(
        [](void *user_data, int, const genesis_forecast *forecast) {
            *static_cast<double *>(user_data) = forecast->steps_left;
        },
        &steps_left);
    for (int step = 0; step < 200; ++step) {
        void *scratch = genesis_malloc(64 << 20, 0, nullptr);
        if (genesis_malloc(1 << 20, 0, nullptr) == nullptr) { /* never freed */
            std::cerr << genesis_last_error_message_get() << '\n';
            return 1;
        }
        genesis_free(scratch, 0, nullptr);
        genesis_trace_iteration(step);
    }
    genesis_optimization done = {};
    done.struct_size = sizeof done;
    genesis_memory_optimize(0, &done);
    std::cout << "warned: " << (steps_left > 0 ? "yes" : "no") << "; optimize() gave back "
              << (done.released_bytes >> 20) << " MiB\n";
}
