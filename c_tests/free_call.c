/* genesis_free takes three arguments or four: through the header and through dlsym. */
#include "check.h"

#include <dlfcn.h>

typedef void (*free_of_three)(void *ptr, int device, genesis_stream stream);
typedef void (*free_of_four)(void *ptr, size_t size, int device, genesis_stream stream);

static uint64_t live_bytes(void)
{
    return stats_of(0).requested_bytes.current;
}

static void through_the_header(void)
{
    void *block = block_of(1000, STREAM(1));
    genesis_free(block, 1000, 0, STREAM(1));
    CHECK(live_bytes() == 0);
    block = block_of(1000, STREAM(1));
    genesis_free(block, 0, STREAM(1));
    CHECK(live_bytes() == 0);

    /* Arguments are evaluated once, whichever call it is. */
    void *blocks[2];
    blocks[0] = block_of(1000, STREAM(1));
    blocks[1] = block_of(2000, STREAM(1));
    size_t next = 0;
    genesis_free(blocks[next++], 1000, 0, STREAM(1));
    genesis_free(blocks[next++], 0, STREAM(1));
    CHECK(next == 2 && live_bytes() == 0);

    /* It is an expression, and usable where there is no brace. */
    block = block_of(1000, STREAM(1));
    if (block != NULL) {
        genesis_free(block, 0, STREAM(1));
    } else {
        CHECK(0);
    }
    CHECK(live_bytes() == 0);
    genesis_free(NULL, 0, STREAM(1));
    genesis_free(NULL, 0, 0, STREAM(1));
}

/* The name alone is the function of four, as PyTorch takes its address. */
static void as_a_pointer(void)
{
    const free_of_four function = genesis_free;
    function(block_of(1000, STREAM(1)), 1000, 0, STREAM(1));
    CHECK(live_bytes() == 0);
}

static void through_dlsym(void)
{
    void *program = dlopen(NULL, RTLD_NOW);
    CHECK(program != NULL);
    void *symbol = dlsym(program, "genesis_free");
    CHECK(symbol != NULL);
    free_of_three three;
    free_of_four four;
    memcpy(&three, &symbol, sizeof symbol);
    memcpy(&four, &symbol, sizeof symbol);
    three(block_of(1000, STREAM(1)), 0, STREAM(1));
    CHECK(live_bytes() == 0);
    four(block_of(1000, STREAM(1)), 1000, 0, STREAM(1));
    CHECK(live_bytes() == 0);
    three(NULL, 0, STREAM(1));
    dlclose(program);
}

int main(void)
{
    through_the_header();
    as_a_pointer();
    through_dlsym();
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    return 0;
}
