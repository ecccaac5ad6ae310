/*
 * Which streams are PyTorch's own, and so certainly exist, with a fake of PyTorch of the same
 * libraries and names.
 *
 * Arguments: the folder of the fake, and "known" or "unknown": whether it has the functions that
 * tell its own streams from those of others.
 */
#include "fake.h"

#define BLOCK (8 * MIB)
/* So many blocks are left free by one stream, and so many needed on another. */
#define LEFT 8
#define NEEDED 3
/* PyTorch's numbers of two streams of its own, and of one that it was given. */
#define FIRST 1
#define SECOND 2
#define GIVEN 0x9000
/* The handle of a stream that other code uses without PyTorch. */
#define OTHER 0x8000
/* The library has two devices, PyTorch only the first. */
#define UNKNOWN_DEVICE 1

static void (*tensor_on)(int64_t, size_t, int, struct outcome *);

/* Makes `count` blocks on the stream of that number, and frees them. */
static void use(int64_t number, int count, int device)
{
    void *blocks[LEFT];
    for (int index = 0; index < count; index++) {
        struct outcome result;
        tensor_on(number, BLOCK, device, &result);
        CHECK(result.pointer != NULL);
        blocks[index] = result.pointer;
    }
    for (int index = 0; index < count; index++) {
        genesis_free(blocks[index], 0, device, NULL);
    }
}

/* What a stream has left free serves another stream, without more memory than one extent. */
static int is_lent(int64_t number, int device)
{
    use(number, LEFT, device);
    const uint64_t before = stats_of(device).reserved_bytes.current;
    use(0, NEEDED, device);
    const uint64_t more = stats_of(device).reserved_bytes.current - before;
    CHECK(more <= BLOCK || more == NEEDED * BLOCK);
    CHECK_OK(genesis_cache_empty(device));
    return more <= BLOCK;
}

int main(int count, char **arguments)
{
    void (*change_current_allocator)(void *);
    int (*is_clean)(void);
    CHECK(count == 3);
    const int is_known = strcmp(arguments[2], "known") == 0;
    void *library = open_fake(arguments[1]);
    find(library, "torch_change_current_allocator", &change_current_allocator);
    find(library, "torch_tensor_on", &tensor_on);
    find(library, "torch_is_clean", &is_clean);

    void *hook;
    void *(*allocate)(size_t, int, genesis_stream) = genesis_torch_malloc;
    memcpy(&hook, &allocate, sizeof hook);
    change_current_allocator(hook);
    /* The first request comes from other code, as vLLM's does: PyTorch is looked for again. */
    genesis_free(genesis_torch_malloc(BLOCK, 0, (genesis_stream)OTHER), 0, 0, NULL);
    CHECK(is_lent(FIRST, 0) == is_known);
    CHECK(!is_lent(GIVEN, 0));
    CHECK(is_lent(SECOND, 0) == is_known);
    /* PyTorch throws when it is asked about a stream of this device: it counts as another's. */
    CHECK(!is_lent(FIRST, UNKNOWN_DEVICE));
    CHECK(is_clean());
    return 0;
}
