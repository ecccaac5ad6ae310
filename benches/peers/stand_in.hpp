// What the driver stand-in counts: the same measure of memory, the same count of calls and the
// same price list for everybody.
//
// The stand-in is found among the libraries already loaded, and never loaded from here.
#pragma once

#include <genesis.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stand_in {

// As the stand-in writes it (`simcuda_usage_get`).
struct Usage {
    std::uint64_t calls;
    std::uint64_t memory_calls;
    std::uint64_t nanoseconds;
    std::uint64_t used_bytes;
    std::uint64_t peak_used_bytes;
};

// Writes what was counted on `device` over those members of `stats`.
inline genesis_status report(int device, genesis_stats &stats) {
    using Get = int (*)(int device, Usage *usage);
    static const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "simcuda_usage_get"));
    Usage usage;
    if (!get || get(device, &usage) != 0) return GENESIS_STATUS_DRIVER_UNAVAILABLE;
    stats.reserved_bytes.current = usage.used_bytes;
    stats.reserved_bytes.peak = usage.peak_used_bytes;
    stats.driver_calls = usage.calls;
    stats.driver_memory_calls = usage.memory_calls;
    stats.driver_nanoseconds = usage.nanoseconds;
    return GENESIS_STATUS_SUCCESS;
}

// Makes the peak of `device` what is in use now.
inline genesis_status reset_peak(int device) {
    using Reset = int (*)(int device);
    static const auto reset = reinterpret_cast<Reset>(dlsym(RTLD_DEFAULT, "simcuda_peak_reset"));
    const bool is_done = reset && reset(device) == 0;
    return is_done ? GENESIS_STATUS_SUCCESS : GENESIS_STATUS_DRIVER_UNAVAILABLE;
}

}  // namespace stand_in
