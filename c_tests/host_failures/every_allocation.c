/*
 * Allocations of the host that the library asks for, failed in turn, alone or with those after
 * them. For each a process of its own makes all kinds of calls. A call succeeds, or fails with a
 * status and a message; what was handed out keeps its contents and is counted; with memory there
 * again all calls succeed.
 *
 * Arguments: a folder to write to; the strategy; how many fail in a row, "all": all after the first
 * one; the first one's number in the first case; how much larger it is in each case than in the one
 * before.
 */
#include "failing_malloc.h"

#include "../check.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 48, MOST_REPORTED = 20 };

static void *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static const char *folder;
/* Whether a call may fail because of the host's memory. */
static int may_fail;
/* Whether the library has started: before that no call can be served. */
static int has_started;

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data, (void)level, (void)message;
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%d.%s", folder, (int)getpid(), name);
    return path;
}

/* Whether the call has succeeded, or failed as it may: with `also`, or for want of memory. */
static int ends(genesis_status status, genesis_status also, const char *text, int line)
{
    const int is_short = may_fail && status == GENESIS_STATUS_OUT_OF_HOST_MEMORY;
    if (status != GENESIS_STATUS_SUCCESS && status != also && !is_short) {
        check_status(GENESIS_STATUS_SUCCESS, status, text, __FILE__, line);
    }
    if (status != GENESIS_STATUS_SUCCESS) {
        check_last_error(status, text, __FILE__, line);
    }
    return status == GENESIS_STATUS_SUCCESS;
}

#define TRY(call) ends((call), GENESIS_STATUS_SUCCESS, #call, __LINE__)
#define TRY_OR(also, call) ends((call), (also), #call, __LINE__)
/* Of a call that does not fail for want of memory. */
#define SERVE(call) CHECK(TRY(call) || !has_started)
/* The same of a call that returns a pointer. */
#define TRY_POINTER(pointer)                                                                       \
    ((pointer) != NULL ||                                                                          \
     !ends(genesis_last_error_get(), GENESIS_STATUS_SUCCESS, #pointer, __LINE__))

static void count_block(void *counted, const genesis_live_block *block)
{
    (void)block;
    ++*(size_t *)counted;
}

/* What is live is what was handed out, and has its contents. */
static void check_blocks(void)
{
    size_t count = 0, bytes = 0, visited = 0;
    for (int n = 0; n < BLOCKS; n++) {
        if (blocks[n] != NULL) {
            CHECK(is_filled((unsigned char *)blocks[n], sizes[n], (unsigned char)n));
            count++;
            bytes += sizes[n];
        }
    }
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    SERVE(genesis_stats_get(0, &stats));
    CHECK(stats.requested_bytes.current == bytes);
    if (TRY(genesis_live_blocks_visit(0, 0, count_block, &visited))) {
        CHECK(visited == count);
    }
}

static void drop(int n)
{
    if (blocks[n] != NULL) {
        CHECK(is_filled((unsigned char *)blocks[n], sizes[n], (unsigned char)n));
    }
    genesis_free(blocks[n], 0, 0, NULL);
    blocks[n] = NULL;
}

static void take(int n, size_t size, genesis_stream stream)
{
    drop(n);
    genesis_last_error_clear();
    blocks[n] = genesis_malloc(size, 0, stream);
    sizes[n] = size;
    if (blocks[n] == NULL) {
        CHECK(may_fail && genesis_last_error_get() == GENESIS_STATUS_OUT_OF_HOST_MEMORY);
    } else {
        has_started = 1;
        fill((unsigned char *)blocks[n], size, (unsigned char)n);
    }
}

static void use_streams(void)
{
    for (int round = 0; round < 3 * BLOCKS; round++) {
        const int n = round * 7 % BLOCKS;
        take(n, (size_t)(round % 16 == 0 ? 1200000 : 700) + (size_t)round * 40, STREAM(round % 3));
        if (blocks[n] != NULL && round % 4 == 0) {
            CHECK_OK(genesis_block_record_stream(blocks[n], STREAM(3)));
        }
    }
    check_blocks();
    SERVE(genesis_stream_forget(STREAM(2)));
}

static void use_parts(void)
{
    const genesis_pool_id pool = {1, 2};
    TRY(genesis_tag_limit_set("limited", 0, 64 * MIB));
    if (TRY(genesis_tag_push("limited"))) {
        take(0, 5000, STREAM(1));
        CHECK_OK(genesis_tag_pop());
    }
    drop(0);
    if (TRY(genesis_private_pool_create(0, pool, 0, NULL))) {
        if (TRY(genesis_private_pool_begin(0, pool))) {
            take(1, 70000, STREAM(1));
            CHECK_OK(genesis_private_pool_end(0, pool));
            CHECK_OK(genesis_private_pool_release(0, pool));
        }
        check_blocks();
        drop(1);
        CHECK_OK(genesis_private_pool_release(0, pool));
    }
    void *named = genesis_malloc_named(4000, 0, STREAM(1), "scope", "name");
    if (TRY_POINTER(named)) {
        genesis_free(named, 0, 0, NULL);
    }
    genesis_dlpack_buffer *buffer = NULL;
    if (TRY(genesis_dlpack_buffer_create(9000, 0, STREAM(1), &buffer))) {
        genesis_dlpack_buffer_release(buffer);
    }
}

static genesis_memory_use memory_of(int kind)
{
    genesis_memory_use use;
    memset(&use, 0, sizeof use);
    use.kind = kind;
    use.stream = kind == GENESIS_MEMORY_KIND_DEVICE ? STREAM(0) : NULL;
    return use;
}

static void use_objects(int kind)
{
    genesis_arena_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.memory = memory_of(kind);
    options.chunk_bytes = 64 * KIB;
    genesis_arena *arena = NULL;
    if (TRY(genesis_arena_create(&options, &arena))) {
        for (int n = 0; n < 20; n++) {
            (void)TRY_POINTER(genesis_arena_allocate(arena, 9000, 0));
        }
        CHECK_OK(genesis_arena_reset(arena));
        genesis_arena_destroy(arena);
    }
    genesis_fixed_pool_options fixed;
    memset(&fixed, 0, sizeof fixed);
    fixed.struct_size = sizeof fixed;
    fixed.memory = memory_of(kind);
    fixed.block_bytes = 1000;
    fixed.growth = 8;
    genesis_fixed_pool *pool = NULL;
    if (TRY(genesis_fixed_pool_create(&fixed, &pool))) {
        for (int n = 0; n < 20; n++) {
            void *block = genesis_fixed_pool_allocate(pool);
            if (TRY_POINTER(block) && n % 3 == 0) {
                CHECK_OK(genesis_fixed_pool_free(pool, block));
            }
        }
        genesis_fixed_pool_destroy(pool);
    }
    const genesis_memory_tier tiers[] = {{1024, 3}, {64, 5}};
    genesis_memory_manager_options managed;
    memset(&managed, 0, sizeof managed);
    managed.struct_size = sizeof managed;
    managed.memory = memory_of(kind);
    managed.tiers = tiers;
    managed.tier_count = LENGTH(tiers);
    managed.arena_bytes = 64 * KIB;
    genesis_memory_manager *manager = NULL;
    if (TRY(genesis_memory_manager_create(&managed, &manager))) {
        void *block = genesis_memory_manager_allocate(manager, 50, 0);
        if (TRY_POINTER(block)) {
            CHECK_OK(genesis_memory_manager_free(manager, block));
        }
        genesis_memory_manager_destroy(manager);
    }
}

static void use_host(void)
{
    for (int kind = GENESIS_HOST_KIND_PAGEABLE; kind <= GENESIS_HOST_KIND_PINNED; kind++) {
        void *host[8];
        for (int n = 0; n < 8; n++) {
            host[n] = genesis_host_malloc(20000 + (size_t)n * 90000, kind);
            (void)TRY_POINTER(host[n]);
        }
        for (int n = 0; n < 8; n++) {
            genesis_host_free(host[n]);
        }
        TRY(genesis_host_preallocate(kind, MIB, 1));
        TRY(genesis_host_preallocate_wait());
        TRY(genesis_host_cache_empty(kind));
    }
}

static void watch(void)
{
    char text[256];
    TRY(genesis_option_set("GENESIS_LOG", "warn"));
    TRY(genesis_option_get("GENESIS_LOG", text, sizeof text));
    SERVE(genesis_device_name_get(0, text, sizeof text));
    const int is_recording =
        TRY_OR(GENESIS_STATUS_FILE_FAILED, genesis_trace_start(path_of("gtr.zst")));
    const int is_profiling = TRY(genesis_profile_start());
    TRY(genesis_range_push("range"));
    TRY(genesis_mark_add("mark"));
    for (int n = 0; n < BLOCKS; n++) {
        take(n, 9000 + (size_t)n * 300, STREAM(n % 2));
    }
    genesis_range_pop();
    TRY_OR(GENESIS_STATUS_FILE_FAILED, genesis_snapshot_write(path_of("snapshot.json")));
    if (is_profiling) {
        TRY_OR(GENESIS_STATUS_FILE_FAILED, genesis_profile_write(path_of("profile.html")));
        TRY_OR(GENESIS_STATUS_FILE_FAILED, genesis_profile_write(path_of("profile.json")));
        CHECK_OK(genesis_profile_stop());
    }
    if (is_recording) {
        TRY_OR(GENESIS_STATUS_FILE_FAILED, genesis_trace_stop());
    }
    TRY_OR(GENESIS_STATUS_FILE_FAILED, genesis_plan_write(path_of("plan")));
    genesis_block_info largest[4];
    size_t count = 0;
    SERVE(genesis_largest_allocations_get(0, 0, largest, LENGTH(largest), &count));
    genesis_forecast forecast;
    memset(&forecast, 0, sizeof forecast);
    forecast.struct_size = sizeof forecast;
    TRY(genesis_forecast_get(0, &forecast));
    check_blocks();
}

/* None of these needs memory that is not there. */
static void give_back(void)
{
    for (int n = 0; n < BLOCKS; n += 2) {
        drop(n);
    }
    size_t bytes = 0;
    genesis_optimization done;
    memset(&done, 0, sizeof done);
    done.struct_size = sizeof done;
    SERVE(genesis_cache_trim(0, MIB, &bytes));
    SERVE(genesis_garbage_collect(0, &bytes));
    SERVE(genesis_memory_optimize(0, &done));
    SERVE(genesis_memory_compact(0, &bytes));
    SERVE(genesis_cache_empty(0));
    check_blocks();
}

static void call_everything(void)
{
    use_streams();
    use_parts();
    use_objects(GENESIS_MEMORY_KIND_DEVICE);
    use_objects(GENESIS_MEMORY_KIND_PAGEABLE);
    use_host();
    watch();
    give_back();
}

/* The process of one case: all calls while `count` allocations fail from the one numbered `from`
 * on, then all again with memory. Returns how many allocations the first take. */
static long run(const char *strategy, long from, long count)
{
    may_fail = count != 0;
    genesis_log_callback_set(be_quiet, NULL);
    fail_allocations(from, count);
    /* Without it the strategy is the usual one. */
    (void)ends(genesis_option_set("GENESIS_POOL_TYPE", strategy), GENESIS_STATUS_SUCCESS, "option",
               __LINE__);
    call_everything();
    const long allocations = __atomic_load_n(&asked, __ATOMIC_SEQ_CST);
    fail_allocations(LONG_MAX, 0);
    may_fail = 0;
    call_everything();
    for (int n = 0; n < BLOCKS; n++) {
        drop(n);
    }
    check_blocks();
    const char *const written[] = {"gtr.zst", "snapshot.json", "profile.html", "profile.json",
                                   "plan"};
    for (size_t n = 0; n < LENGTH(written); n++) {
        unlink(path_of(written[n]));
    }
    return allocations;
}

/* Returns how the process of a case ends: 0 if it ends well. */
static int end_of_process(const char *strategy, long from, long count, long *allocations)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        *allocations = run(strategy, from, count);
        exit(0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 6) {
        return 2;
    }
    folder = arguments[1];
    const char *const strategy = arguments[2];
    const long row = strcmp(arguments[3], "all") == 0 ? LONG_MAX : strtol(arguments[3], NULL, 10);
    const long first = strtol(arguments[4], NULL, 10), step = strtol(arguments[5], NULL, 10);
    long *all = (long *)mmap(NULL, 2 * sizeof *all, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || end_of_process(strategy, LONG_MAX, 0, all) != 0) {
        fprintf(stderr, "%s fails with all memory\n", strategy);
        return 1;
    }
    int failed = 0;
    for (long from = first; from <= *all && failed < MOST_REPORTED; from += step) {
        const int status = end_of_process(strategy, from, row, all + 1);
        if (status != 0) {
            fprintf(stderr, "%s, %s from the %ldth of %ld on: status %x\n", strategy, arguments[3],
                    from, *all, (unsigned)status);
            failed++;
        }
    }
    printf("%ld allocations\n", *all);
    return failed == 0 ? 0 : 1;
}
