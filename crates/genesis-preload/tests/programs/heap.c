/*
 * Takes libgenesis.so's place: has one block that is always live, and remembers what it is told of
 * streams and captures.
 */
#include "checks.h"
#include "heap.h"

static char said[4096];

#define SAY(...) snprintf(said + strlen(said), sizeof said - strlen(said), __VA_ARGS__)

/* What it was told since the last question. */
const char *heap_said(void) {
    static char copy[sizeof said];
    memcpy(copy, said, sizeof said);
    said[0] = 0;
    return copy;
}

genesis_status genesis_stream_forget(genesis_stream stream) {
    int (*query)(genesis_stream);
    *(void **)&query = dlsym(RTLD_DEFAULT, "cudaStreamQuery");
    int status = query(stream);
    /* 900: the stream exists, and is captured. */
    SAY("forget %llx%s;", (unsigned long long)(uintptr_t)stream,
        status == 0 || status == 900 ? "" : " too late");
    return 0;
}

genesis_status genesis_capture_begin(int device) { return SAY("begin %d;", device), 0; }
genesis_status genesis_capture_end(int device) { return SAY("end %d;", device), 0; }

genesis_status genesis_option_get(const char *name, char *buffer, size_t capacity) {
    CHECK(!strcmp(name, "GENESIS_STREAM_IDS"));
    snprintf(buffer, capacity, "%s", getenv(name) ? getenv(name) : "auto");
    return 0;
}

genesis_status genesis_option_set(const char *name, const char *value) {
    return SAY("%s=%s;", name, value), 0;
}

genesis_status genesis_backend_get(const char **name) { return *name = "cuda", 0; }
void *genesis_malloc(size_t size, int device, genesis_stream stream) {
    (void)size, (void)device, (void)stream;
    return NULL;
}
void genesis_free(void *block, size_t size, int device, genesis_stream stream) {
    (void)block, (void)size, (void)device, (void)stream;
}
genesis_status genesis_last_error_get(void) { return 1; }
genesis_status genesis_block_record_stream(void *block, genesis_stream stream) {
    (void)stream;
    return block == HEAP_BLOCK ? 0 : 4;
}
genesis_status genesis_block_info_get(const void *block, genesis_block_info *info) {
    memset(info, 0, sizeof *info);
    info->address = HEAP_BLOCK;
    return block == HEAP_BLOCK ? 0 : 4;
}
genesis_status genesis_memory_info_get(int device, size_t *free_bytes, size_t *total_bytes) {
    (void)device, (void)free_bytes, (void)total_bytes;
    return 1;
}
genesis_status genesis_stats_get(int device, genesis_stats *stats) {
    (void)device, (void)stats;
    return 1;
}
genesis_status genesis_cache_empty(int device) { return (void)device, 0; }
genesis_status genesis_peer_access_enable(int device, int peer) {
    return (void)device, (void)peer, 0;
}
genesis_status genesis_out_of_memory_callback_add(genesis_out_of_memory_callback callback,
                                                  void *context, uint64_t *id) {
    (void)callback, (void)context, (void)id;
    return 0;
}
