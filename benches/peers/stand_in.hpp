// What the driver stand-in counts: one measure of memory, one count of calls and one price list
// for all allocators.
//
// The stand-in is found among the libraries already loaded; it is never loaded from here. It has
// one device in these measurements, so its sums over devices are that device's.
#pragma once

#include <genesis.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stand_in {

// The function `name` of the stand-in; null if there is no stand-in.
template <typename Function>
Function *find(const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}

// True if the driver is the stand-in.
inline bool is_there() {
    static const bool is_there = find<std::int64_t()>("simcuda_driver_nanoseconds") != nullptr;
    return is_there;
}

// Overwrites the members of `stats` that the stand-in counts, with the figures of `device`.
inline genesis_status report(int device, genesis_stats &stats) {
    static const auto census = find<std::int64_t(const char *what)>("simcuda_census");
    static const auto peak_bytes = find<std::int64_t(int device)>("simcuda_peak_bytes");
    static const auto calls = find<std::int64_t(const char *name)>("simcuda_calls");
    static const auto nanoseconds = find<std::int64_t()>("simcuda_driver_nanoseconds");
    if (!census || !peak_bytes || !calls || !nanoseconds || peak_bytes(device) < 0) {
        return GENESIS_STATUS_DRIVER_UNAVAILABLE;
    }
    std::int64_t memory_calls = 0;
    for (const char *name :
         {"cuMemAlloc", "cuMemFree", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",
          "cuMemRelease", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"}) {
        memory_calls += calls(name);
    }
    stats.reserved_bytes.current = census("used_bytes");
    stats.reserved_bytes.peak = peak_bytes(device);
    stats.driver_calls = calls("all");
    stats.driver_memory_calls = memory_calls;
    stats.driver_nanoseconds = nanoseconds();
    return GENESIS_STATUS_SUCCESS;
}

// How often the call `name` of the driver was made; below 0 if there is no stand-in.
inline std::int64_t calls(const char *name) {
    static const auto count = find<std::int64_t(const char *name)>("simcuda_calls");
    return count ? count(name) : -1;
}

// The name of the prices of driver time; null if there is no stand-in.
inline const char *prices() {
    static const auto name = find<const char *()>("simcuda_prices");
    return name ? name() : nullptr;
}

// Makes the peak of `device` the bytes in use now.
inline genesis_status reset_peak(int device) {
    static const auto reset = find<int(int device)>("simcuda_peak_reset");
    const bool is_done = reset && reset(device) == 0;
    return is_done ? GENESIS_STATUS_SUCCESS : GENESIS_STATUS_DRIVER_UNAVAILABLE;
}

}  // namespace stand_in
