// Genesis itself, measured as its peers are: memory, driver calls and driver time as the
// stand-in counts them, and not as the library does.
//
// This library is linked against libgenesis.so. It replaces two functions of the interface and
// adds two, for the prices of driver time and for counts of single calls. A look-up finds all other functions in
// libgenesis.so itself, so nothing stands between a replay and the functions that it times.
#include <genesis.h>

#include "stand_in.hpp"

extern "C" {

genesis_status genesis_stats_get(int device, genesis_stats *stats) {
    using Get = genesis_status (*)(int, genesis_stats *);
    static const auto own = reinterpret_cast<Get>(dlsym(RTLD_NEXT, "genesis_stats_get"));
    if (!own) return GENESIS_STATUS_INTERNAL;
    const genesis_status status = own(device, stats);
    return status == GENESIS_STATUS_SUCCESS ? stand_in::report(device, *stats) : status;
}

genesis_status genesis_stats_reset_peak(int device) { return stand_in::reset_peak(device); }

const char *stand_in_prices() { return stand_in::prices(); }

std::int64_t stand_in_calls(const char *name) { return stand_in::calls(name); }

}  // extern "C"
