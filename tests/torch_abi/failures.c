/*
 * What a failed request looks like to PyTorch and to C, with a fake of PyTorch of the same
 * libraries and names.
 *
 * Arguments: the folder of the fake, and what it raises when memory is short: "OutOfMemoryError",
 * "RuntimeError", or "" where it gets NULL because nothing to throw can be found in it. As under
 * Python, neither PyTorch nor a C++ runtime is visible to all: this is C, and they are opened.
 */
#include "fake.h"

#include <pthread.h>

static void (*change_current_allocator)(void *);
static void (*tensor)(size_t, int, struct outcome *);
static void (*tensor_in_pool)(size_t, int, struct outcome *);
static void (*operator_)(void *(*)(size_t), size_t, struct outcome *);
static int (*is_clean)(void);
static void (*end)(void);
static const char *when_short;

static void open_torch(const char *folder)
{
    void *library = open_fake(folder);
    find(library, "torch_change_current_allocator", &change_current_allocator);
    find(library, "torch_tensor", &tensor);
    find(library, "torch_tensor_in_pool", &tensor_in_pool);
    find(library, "torch_operator", &operator_);
    find(library, "torch_is_clean", &is_clean);
    find(library, "torch_end", &end);
    CHECK(dlsym(RTLD_DEFAULT, "__cxa_throw") == NULL);
}

static void *from_c(size_t size)
{
    void *pointer = genesis_malloc(size, 0, STREAM(0));
    /* Not the last thing this function does: its frame is there during the call. */
    CHECK(pointer == NULL || (uintptr_t)pointer % ALIGNMENT == 0);
    return pointer;
}

static int has(const struct outcome *result, const char *part)
{
    if (strstr(result->message, part) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", part, result->message);
        return 0;
    }
    return 1;
}

/* The request fails, and the next one that fits is served. */
static struct outcome refused(size_t size, int device)
{
    struct outcome result, next;
    genesis_last_error_clear();
    tensor(size, device, &result);
    CHECK(result.pointer == NULL);
    CHECK(genesis_last_error_get() != GENESIS_STATUS_SUCCESS);
    CHECK(is_clean());
    tensor(1000, 0, &next);
    CHECK(next.pointer != NULL && next.raised[0] == '\0');
    genesis_free(next.pointer, 1000, 0, STREAM(0));
    return result;
}

static void a_shortage_is_torchs_own_error(void)
{
    struct outcome result;
    tensor(64 * MIB, 0, &result);
    CHECK(result.pointer != NULL);
    void *live = result.pointer;
    tensor(32 * MIB, 0, &result);
    genesis_free(result.pointer, 0, 0, STREAM(0));

    result = refused(GIB, 0);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_OUT_OF_MEMORY);
    CHECK(strcmp(result.raised, when_short) == 0);
    if (when_short[0] != '\0') {
        CHECK(has(&result, "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total "
                           "capacity of 256.00 MiB of which 192.00 MiB is free. Genesis holds "
                           "64.00 MiB on GPU 0, with no limit: 64.00 MiB live (blocks: 1), 0 B "
                           "freed but still in use by other streams, 0 B cached, of which the "
                           "largest free run is 0 B (fragmentation index 0.000). A hint: it is "
                           "larger than the device: split it."));
    }
    CHECK_OK(genesis_memory_limit_set(0, 128 * MIB));
    result = refused(100 * MIB, 0);
    CHECK(strcmp(result.raised, when_short) == 0);
    if (when_short[0] != '\0') {
        CHECK(has(&result, "with a limit of 128.00 MiB"));
        CHECK(has(&result, "raise GENESIS_MEMORY_LIMIT"));
    }
    CHECK_OK(genesis_memory_limit_set(0, 0));
    result = refused(SIZE_MAX, 0);
    CHECK(strcmp(result.raised, when_short) == 0);
    const char *too_much = "CUDA out of memory. Tried to allocate more than 1EB memory.";
    CHECK(when_short[0] == '\0' || has(&result, too_much));
    genesis_free(live, 0, 0, STREAM(0));
}

static void any_other_failure_is_a_runtime_error(void)
{
    struct outcome result = refused(1000, 99);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_INVALID_DEVICE);
    CHECK(strcmp(result.raised, when_short[0] == '\0' ? "" : "RuntimeError") == 0);
    CHECK(when_short[0] == '\0' || has(&result, "Genesis: no device 99"));
    CHECK(when_short[0] == '\0' || !strstr(result.message, "out of memory"));
}

/* PyTorch's cache makes room and asks again when it gets NULL, and only then. */
static void torchs_cache_gets_null(void)
{
    struct outcome result;
    genesis_last_error_clear();
    tensor_in_pool(GIB, 0, &result);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_OUT_OF_MEMORY);
    CHECK(result.attempts == 4);
    CHECK(strcmp(result.raised, "OutOfMemoryError") == 0);
    CHECK(has(&result, "PyTorch's own message"));
    CHECK(is_clean());
    /* That it cannot do anything about. */
    tensor_in_pool(1000, 99, &result);
    CHECK(result.attempts == (when_short[0] == '\0' ? 4 : 1));
    CHECK(when_short[0] == '\0' || strcmp(result.raised, "RuntimeError") == 0);
    CHECK(is_clean());
}

static void others_get_null(void)
{
    struct outcome result;
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, from_c(GIB));
    CHECK(from_c(GIB) == NULL);
    CHECK_MESSAGE("out of memory: device=0 requested_bytes=1073741824 (1.00 GiB)");
    CHECK_MESSAGE("hint: ");
    /* Somebody's code within an operator of PyTorch is somebody's code. */
    operator_(from_c, GIB, &result);
    CHECK(result.pointer == NULL && result.raised[0] == '\0');
    operator_(from_c, 1000, &result);
    CHECK(result.pointer != NULL && result.raised[0] == '\0');
    genesis_free(result.pointer, 0, 0, STREAM(0));
    /* Nothing was asked for, so nothing failed. */
    genesis_last_error_clear();
    tensor(0, 0, &result);
    CHECK(result.pointer == NULL && result.raised[0] == '\0');
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
}

static void *fail_often(void *unused)
{
    for (int round = 0; round < 50; round++) {
        struct outcome result;
        tensor(GIB, 0, &result);
        CHECK(result.pointer == NULL && strcmp(result.raised, when_short) == 0);
        CHECK(from_c(GIB) == NULL);
    }
    return unused;
}

static void threads_fail_at_the_same_time(void)
{
    pthread_t threads[8];
    for (size_t index = 0; index < LENGTH(threads); index++) {
        CHECK(pthread_create(&threads[index], NULL, fail_often, NULL) == 0);
    }
    for (size_t index = 0; index < LENGTH(threads); index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(is_clean());
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    when_short = arguments[2];
    open_torch(arguments[1]);
    void *(*alloc)(size_t, int, genesis_stream) = genesis_malloc;
    void *address;
    memcpy(&address, &alloc, sizeof address);
    change_current_allocator(address);

    a_shortage_is_torchs_own_error();
    any_other_failure_is_a_runtime_error();
    torchs_cache_gets_null();
    others_get_null();
    threads_fail_at_the_same_time();
    CHECK(stats_of(0).allocated_bytes.current == 0);
    end();
    return 0;
}
