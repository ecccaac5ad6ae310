// Another allocator behind the part of Genesis's C interface that a replay calls.
//
// `genesis replay --library libpeer_NAME.so` measures it with the same loop, threads, streams and
// samples as Genesis. An adapter defines `struct Peer` and includes this file last; the functions
// of `Peer` are inlined here, so the adapter costs a few instructions and no second call.
//
//   static constexpr const char *name, *version;
//   static void start();                               throws when there is no device
//   static void *allocate(size_t bytes, stream);       throws when memory is short
//   static void release(void *, size_t bytes, stream);
//   static genesis_status record_stream(void *, stream);
//   static void empty_cache();
//   static genesis_status own_statistics(genesis_stats &);   what it knows itself
//   static genesis_status reset_own_peak();
//   static genesis_status limit(size_t bytes);               the most it may reserve
//
// Only device 0 exists. A request that throws returns NULL, as Genesis does; any other exception
// ends the process, so that no measurement is wrong unnoticed. The signatures are those of the
// generated header, which is included. On the stand-in, memory and driver calls are those that the
// stand-in counts; on a real driver, where nobody counts for all, they are the peer's own.
#pragma once

#include <genesis.h>

#include <exception>
#include <string>

#include "stand_in.hpp"

namespace peer {

inline thread_local std::string last_error;

// Starts the peer once; every later call returns what the first did.
inline genesis_status start() {
    static const genesis_status started = [] {
        try {
            Peer::start();
            return GENESIS_STATUS_SUCCESS;
        } catch (const std::exception &error) {
            // The first line is the message; a backtrace follows.
            last_error = error.what();
            last_error.resize(std::min(last_error.find('\n'), last_error.size()));
            return GENESIS_STATUS_DRIVER_UNAVAILABLE;
        }
    }();
    return started;
}

// Runs `action`; an exception ends the process.
template <typename Action>
auto surely(Action action) noexcept {
    return action();
}

inline genesis_status write_text(const char *text, char *buffer, size_t capacity) noexcept {
    if (!buffer || std::strlen(text) >= capacity) return GENESIS_STATUS_INVALID_ARGUMENT;
    std::strcpy(buffer, text);
    return GENESIS_STATUS_SUCCESS;
}

}  // namespace peer

extern "C" {

void *genesis_malloc(size_t size, int, genesis_stream stream) {
    if (size == 0) return nullptr;
    try {
        return Peer::allocate(size, stream);
    } catch (...) {
        return nullptr;
    }
}

void genesis_free(void *ptr, size_t size, int, genesis_stream stream) {
    peer::surely([=] {
        if (ptr) Peer::release(ptr, size, stream);
    });
}

genesis_status genesis_block_record_stream(void *ptr, genesis_stream stream) {
    return peer::surely([=] { return Peer::record_stream(ptr, stream); });
}

genesis_status genesis_cache_empty(int) {
    peer::surely([] { Peer::empty_cache(); });
    return GENESIS_STATUS_SUCCESS;
}

genesis_status genesis_stats_get(int device, genesis_stats *stats) {
    if (!stats) return GENESIS_STATUS_INVALID_ARGUMENT;
    genesis_stats all{};
    all.struct_size = std::min(stats->struct_size, sizeof all);
    const genesis_status status =
        stand_in::is_there() ? stand_in::report(device, all)
                             : peer::surely([&] { return Peer::own_statistics(all); });
    if (status == GENESIS_STATUS_SUCCESS) std::memcpy(stats, &all, all.struct_size);
    return status;
}

genesis_status genesis_stats_reset_peak(int device) {
    if (stand_in::is_there()) return stand_in::reset_peak(device);
    return peer::surely([] { return Peer::reset_own_peak(); });
}

const char *stand_in_prices() { return stand_in::prices(); }

std::int64_t stand_in_calls(const char *name) { return stand_in::calls(name); }

genesis_status genesis_device_count_get(int *count) {
    const genesis_status started = peer::start();
    if (started == GENESIS_STATUS_SUCCESS) *count = 1;
    return started;
}

genesis_status genesis_backend_get(const char **name) {
    *name = "cuda";
    return GENESIS_STATUS_SUCCESS;
}

genesis_status genesis_device_name_get(int, char *buffer, size_t capacity) {
    return peer::write_text("", buffer, capacity);
}

genesis_status genesis_option_get(const char *name, char *buffer, size_t capacity) {
    if (std::strcmp(name, "GENESIS_POOL_TYPE") != 0) return GENESIS_STATUS_INVALID_ARGUMENT;
    return peer::write_text(Peer::name, buffer, capacity);
}

// On the stand-in the size of the device is the limit, which all peers obey.
genesis_status genesis_memory_limit_set(int, size_t limit) {
    return peer::surely([=] { return Peer::limit(limit); });
}
genesis_status genesis_memory_info_get(int, size_t *, size_t *) {
    return GENESIS_STATUS_NOT_SUPPORTED;
}

const char *genesis_version_get(void) { return Peer::version; }
const char *genesis_last_error_message_get(void) { return peer::last_error.c_str(); }
const char *genesis_status_text_get(int) { return "the peer failed"; }

}  // extern "C"
