/* A library with the functions of libgenesis.so that serves every request at once.
 *
 * It "reserves" the live peak in multiples of 512 bytes and gives it back only when the cache is
 * emptied, so that the results of a replay can be computed by hand. A request that exceeds the
 * limit fails. Pointers are numbers. It checks a replay's arguments as far as it can, and counts
 * wrong ones as retries. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { uint64_t current, peak, total; } gauge;
typedef struct {
    size_t struct_size;
    gauge requested, allocated, reserved, active, inactive;
    uint64_t allocations, frees, hits, misses, driver_calls, driver_memory_calls, driver_ns;
    uint64_t retries, oom_events, cross_stream_reuses, free_bytes, largest_free_bytes;
    double hit_rate, fragmentation_ratio, fragmentation_index;
} stats;

static stats s;
static uint64_t next_pointer = 512, limit;

static uint64_t rounded(size_t bytes) { return ((uint64_t)bytes + 511) / 512 * 512; }

void *genesis_malloc(size_t bytes, int device, void *stream) {
    (void)stream;
    if (device != 0) __atomic_add_fetch(&s.retries, 1, __ATOMIC_RELAXED);
    if (bytes == 0) return NULL;
    uint64_t live = __atomic_add_fetch(&s.allocated.current, rounded(bytes), __ATOMIC_SEQ_CST);
    if (limit && live > limit) {
        __atomic_sub_fetch(&s.allocated.current, rounded(bytes), __ATOMIC_SEQ_CST);
        return NULL;
    }
    __atomic_add_fetch(&s.allocations, 1, __ATOMIC_SEQ_CST);
    if (live > s.reserved.current) {
        s.reserved.current = live;
        s.driver_calls += 2;
        s.driver_memory_calls += 1;
        s.driver_ns += 1000;
    }
    if (s.reserved.peak < s.reserved.current) s.reserved.peak = s.reserved.current;
    return (void *)(uintptr_t)__atomic_add_fetch(&next_pointer, 512, __ATOMIC_SEQ_CST);
}

void genesis_free(void *block, size_t bytes, int device, void *stream) {
    (void)stream;
    if (device != 0 || !block || !bytes) __atomic_add_fetch(&s.retries, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&s.allocated.current, rounded(bytes), __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&s.frees, 1, __ATOMIC_SEQ_CST);
}

int genesis_block_record_stream(void *block, void *stream) {
    if (!block || !stream) __atomic_add_fetch(&s.retries, 1, __ATOMIC_RELAXED);
    return 0;
}

int genesis_cache_empty(int device) {
    (void)device;
    s.reserved.current = s.allocated.current;
    return 0;
}

int genesis_stats_get(int device, stats *out) {
    if (device != 0 || out->struct_size != sizeof s) return 1;
    *out = s;
    out->fragmentation_ratio = (double)s.allocated.current / (1 << 20);
    return 0;
}

int genesis_stats_reset_peak(int device) {
    s.reserved.peak = s.reserved.current;
    return device != 0;
}

int genesis_memory_info_get(int device, size_t *free_bytes, size_t *total_bytes) {
    *total_bytes = 1 << 30;
    *free_bytes = *total_bytes - s.reserved.current;
    return device != 0;
}

int genesis_memory_limit_set(int device, size_t bytes) { limit = bytes; return device != 0; }
int genesis_device_count_get(int *count) { *count = 1; return 0; }
int genesis_backend_get(const char **name) { *name = "sim"; return 0; }
int genesis_device_name_get(int device, char *buffer, size_t capacity) {
    snprintf(buffer, capacity, "stub");
    return device != 0;
}
int genesis_option_get(const char *name, char *buffer, size_t capacity) {
    if (strcmp(name, "GENESIS_POOL_TYPE")) return 1;
    snprintf(buffer, capacity, "Stub");
    return 0;
}
const char *genesis_last_error_message_get(void) { return ""; }
const char *genesis_version_get(void) { return "0.0.0-stub"; }
const char *genesis_status_text_get(int status) { return status == 1 ? "invalid argument" : "?"; }
