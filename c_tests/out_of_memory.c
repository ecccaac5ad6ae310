/* Callbacks for when memory is short: they may free, and call anything of the library. */
#include "check.h"

#define LIMIT (64 * MIB)
#define LARGE (48 * MIB)

/* What a callback was told, and what it holds for bad times. */
typedef struct {
    unsigned char *reserve;
    int calls;
    int order;
    int device;
    size_t wanted_bytes;
} holder;

static int calls_so_far;

static void ignore_message(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static int give_reserve(void *user_data, int device, size_t wanted_bytes)
{
    holder *holds = (holder *)user_data;
    holds->calls++;
    holds->order = ++calls_so_far;
    holds->device = device;
    holds->wanted_bytes = wanted_bytes;
    /* No lock is held: all of the library may be called. */
    CHECK(stats_of(device).reserved_bytes.current <= LIMIT);
    size_t count;
    CHECK_OK(genesis_largest_allocations_get(device, 0, NULL, 0, &count));
    CHECK_OK(genesis_cache_trim(device, SIZE_MAX, NULL));
    uint64_t id;
    CHECK_OK(genesis_out_of_memory_callback_add(give_reserve, holds, &id));
    CHECK_OK(genesis_out_of_memory_callback_remove(id));
    if (holds->reserve == NULL) {
        return 0;
    }
    genesis_free(holds->reserve, LARGE, device, STREAM(0));
    holds->reserve = NULL;
    return 1;
}

/* Says that it has freed something, and has not. */
static int lie(void *user_data, int device, size_t wanted_bytes)
{
    (void)device;
    (void)wanted_bytes;
    ++*(int *)user_data;
    return 1;
}

/* Asks for memory itself, again and again: no callback is asked for that, which would not end. */
static int ask_again(void *user_data, int device, size_t wanted_bytes)
{
    ++*(int *)user_data;
    for (int request = 0; request < 4; request++) {
        CHECK(genesis_malloc(wanted_bytes, device, STREAM(5)) == NULL);
        CHECK(genesis_last_error_get() == GENESIS_STATUS_OUT_OF_MEMORY);
    }
    return 0;
}

static void freeing_serves_the_request(void)
{
    holder first, second;
    uint64_t first_id = 0, second_id = 0;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    CHECK_OK(genesis_out_of_memory_callback_add(give_reserve, &first, &first_id));
    CHECK_OK(genesis_out_of_memory_callback_add(give_reserve, &second, &second_id));
    CHECK(first_id != second_id);

    second.reserve = block_of(LARGE, STREAM(0));
    CHECK(first.calls == 0 && second.calls == 0);
    void *block = block_of(LARGE, STREAM(0));
    CHECK(first.calls == 1 && second.calls == 1);
    CHECK(first.order == 1 && second.order == 2);
    CHECK(second.device == 0 && second.wanted_bytes >= LARGE);
    CHECK(stats_of(0).retries == 1 && stats_of(0).out_of_memory_events == 0);

    /* Nobody has anything left. */
    genesis_last_error_clear();
    CHECK(genesis_malloc(LARGE, 0, STREAM(0)) == NULL);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_OUT_OF_MEMORY);
    CHECK(second.calls == 2 && stats_of(0).out_of_memory_events == 1);

    CHECK_OK(genesis_out_of_memory_callback_remove(first_id));
    CHECK(genesis_malloc(LARGE, 0, STREAM(0)) == NULL);
    CHECK(first.calls == 2 && second.calls == 3);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_out_of_memory_callback_remove(first_id));
    CHECK_OK(genesis_out_of_memory_callback_remove(second_id));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_out_of_memory_callback_remove(999));
    genesis_free(block, 0, STREAM(0));
}

static void callbacks_that_do_not_help(void)
{
    int lies = 0, asks = 0;
    uint64_t lying, asking;
    void *block = block_of(LARGE, STREAM(0));
    CHECK_OK(genesis_out_of_memory_callback_add(lie, &lies, &lying));
    CHECK_OK(genesis_out_of_memory_callback_add(ask_again, &asks, &asking));
    for (int request = 1; request <= 3; request++) {
        CHECK(genesis_malloc(LARGE, 0, STREAM(0)) == NULL);
        CHECK(lies == request && asks == request);
    }
    CHECK_OK(genesis_out_of_memory_callback_remove(lying));
    CHECK_OK(genesis_out_of_memory_callback_remove(asking));
    genesis_free(block, 0, STREAM(0));
    /* The next request that fits is served. */
    genesis_free(block_of(LARGE, STREAM(0)), 0, STREAM(0));
}

static void wrong_arguments(void)
{
    uint64_t id = 77;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_out_of_memory_callback_add(NULL, NULL, &id));
    CHECK(id == 77);
    int lies = 0;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_out_of_memory_callback_add(lie, &lies, NULL));
    /* What could not be named was not registered. */
    CHECK(genesis_malloc(2 * LIMIT, 0, STREAM(0)) == NULL);
    CHECK(lies == 0);
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(ignore_message, NULL));
    CHECK_OK(genesis_memory_limit_set(0, LIMIT));
    freeing_serves_the_request();
    callbacks_that_do_not_help();
    wrong_arguments();
    return 0;
}
