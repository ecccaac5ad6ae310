/*
 * What the storage costs beyond the library: nanoseconds of a cached Alloc and Free, and of
 * genesis_malloc and genesis_free. A benchmark: benches/mxnet.rs prints them.
 */
#include "check.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

namespace {

const int PAIRS = 1000000;
const int ROUNDS = 7;

/* Nanoseconds of one call of `pair`, the median of several rounds. */
double nanoseconds_of(const std::function<void()> &pair)
{
    double rounds[ROUNDS];
    for (double &nanoseconds : rounds) {
        const auto started = std::chrono::steady_clock::now();
        for (int count = 0; count < PAIRS; count++) {
            pair();
        }
        const std::chrono::duration<double, std::nano> passed =
            std::chrono::steady_clock::now() - started;
        nanoseconds = passed.count() / PAIRS;
    }
    std::sort(rounds, rounds + ROUNDS);
    return rounds[ROUNDS / 2];
}

} // namespace

int main()
{
    genesis::mxnet::storage own;
    mxnet::Storage &storage = own;
    const size_t size = 1000000;
    const mxnet::Context gpu = mxnet::Context::GPU(0);
    const mxnet::Context cpu = mxnet::Context::CPU();
    const double direct =
        nanoseconds_of([] { genesis_free(genesis_malloc(size, 0, nullptr), 0, nullptr); });
    const double adapted = nanoseconds_of([&] { storage.Free(storage.Alloc(size, gpu)); });
    const double host = nanoseconds_of([&] { storage.Free(storage.Alloc(size, cpu)); });
    printf("genesis_malloc and genesis_free: %.0f ns\n", direct);
    printf("Alloc and Free, GPU:             %.0f ns\n", adapted);
    printf("Alloc and Free, CPU:             %.0f ns\n", host);
    return 0;
}
