/*
 * A program that uses memory wrongly, in the way that its argument names. What it is told goes to
 * standard error; on standard output it says at which lines of this file it did what.
 */
#include "../check.h"

#define NOINLINE __attribute__((noinline))

static void say_line(const char *what, int line)
{
    printf("%s %d\n", what, line);
}

/* The call stands in the line that is said. */
#define SAID(what, call) (say_line((what), __LINE__), (call))

static NOINLINE void *load_weights(size_t bytes)
{
    void *block = SAID("weights", genesis_malloc(bytes, 0, STREAM(1)));
    CHECK(block != NULL);
    return block;
}

static NOINLINE void *make_cache(size_t bytes)
{
    void *block = SAID("cache", genesis_malloc(bytes, 0, LEGACY_STREAM));
    CHECK(block != NULL);
    return block;
}

static NOINLINE void let_go(void *block)
{
    SAID("free", genesis_free(block, 0, LEGACY_STREAM));
}

/* Three blocks in two places, and others that are freed. */
static void leak(void)
{
    int n;
    void *freed[10];
    for (n = 0; n < 10; n++) {
        freed[n] = load_weights(1000 * (size_t)(n + 1));
    }
    make_cache(3 * MIB);
    for (n = 0; n < 10; n++) {
        let_go(freed[n]);
    }
    load_weights(5000);
    load_weights(5000);
}

static void leak_nothing(void)
{
    void *first = load_weights(5000);
    void *second = make_cache(3 * MIB);
    let_go(first);
    let_go(second);
}

static void double_free(void)
{
    void *block = load_weights(5000);
    let_go(block);
    genesis_last_error_clear();
    SAID("again", genesis_free(block, 0, LEGACY_STREAM));
    CHECK(genesis_last_error_get() == GENESIS_STATUS_DOUBLE_FREE);
}

static void foreign_free(void)
{
    static char own[64];
    char *block = (char *)load_weights(5000);
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, let_go(block + 512));
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, let_go(own));
    let_go(block);
}

static void patterns(void)
{
    size_t n;
    unsigned char *block = (unsigned char *)load_weights(5000);
    for (n = 0; n < 5000; n++) {
        CHECK(block[n] == 0xCD);
    }
    memset(block, 0, 5000);
    let_go(block);
    for (n = 0; n < 5000; n++) {
        CHECK(block[n] == 0xDD);
    }
}

static void late_write(void)
{
    char *block = (char *)load_weights(5000);
    let_go(block);
    block[77] = 1;
    CHECK_OK(genesis_cache_empty(0));
}

static void slack(void)
{
    char *block = (char *)load_weights(5000);
    block[5000] = 1;
    let_go(block);
}

/* The guard page begins where the block's last 512 bytes end. */
static void overrun(void)
{
    volatile char *block = (volatile char *)load_weights(5000);
    block[4999] = 1;
    block[5119] = 1;
    printf("before\n");
    fflush(stdout);
    block[5120] = 1;
    printf("after\n");
}

static void use_after_free(void)
{
    volatile char *block = (volatile char *)make_cache(3 * MIB);
    block[0] = 1;
    let_go((void *)(uintptr_t)block);
    printf("before\n");
    fflush(stdout);
    block[0] = 1;
    printf("after\n");
}

static int has_line(const char *location, const char *function)
{
    const char *end = strchr(location, '\n');
    const size_t length = end != NULL ? (size_t)(end - location) : strlen(location);
    return length > strlen(function) && strstr(location, "debugging.c:") != NULL &&
           strstr(location, function) < location + length && strstr(location, "(main)") != NULL;
}

struct seen {
    int count;
    size_t bytes[4];
};

static void look(void *user_data, const genesis_live_block *block)
{
    struct seen *seen = (struct seen *)user_data;
    CHECK(seen->count < 4);
    seen->bytes[seen->count++] = block->requested_bytes;
    CHECK(block->address != NULL && block->device == 0);
    CHECK(block->allocated_bytes >= block->requested_bytes);
    if (block->requested_bytes == 700) {
        /* From before anybody wanted to know. */
        CHECK(block->age_ns == UINT64_MAX && strcmp(block->location, "") == 0);
        return;
    }
    CHECK(block->age_ns < UINT64_C(100000000000) && block->tag == NULL);
    CHECK(has_line(block->location,
                   block->requested_bytes == 3 * MIB ? "(make_cache)" : "(load_weights)"));
    CHECK(block->requested_bytes == 3 * MIB || block->stream == STREAM(1));
    /* A visitor may free the blocks that it sees. */
    genesis_free(block->address, 0, LEGACY_STREAM);
}

/* Also that debugging may be switched on while blocks are live. */
static void visit(void)
{
    struct seen seen = {0, {0}};
    void *before = load_weights(700);
    char buffer[64];
    CHECK_OK(genesis_option_set("GENESIS_DEBUG", "leaks,quarantine"));
    CHECK_OK(genesis_option_get("GENESIS_DEBUG", buffer, sizeof buffer));
    CHECK(strcmp(buffer, "leaks,quarantine") == 0);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("GENESIS_DEBUG", "guard"));
    CHECK_MESSAGE("before the first allocation");
    load_weights(5000);
    make_cache(3 * MIB);
    load_weights(900);
    CHECK_OK(genesis_live_blocks_visit(-1, 0, look, &seen));
    CHECK(seen.count == 4 && seen.bytes[0] == 3 * MIB && seen.bytes[1] == 5000);
    CHECK(seen.bytes[2] == 900 && seen.bytes[3] == 700);
    let_go(before);
    seen.count = 0;
    CHECK_OK(genesis_live_blocks_visit(0, 0, look, &seen));
    CHECK(seen.count == 0);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_live_blocks_visit(0, 0, NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_live_blocks_visit(7, 0, look, &seen));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"leak", leak},
        {"leak_nothing", leak_nothing},
        {"double_free", double_free},
        {"foreign_free", foreign_free},
        {"patterns", patterns},
        {"late_write", late_write},
        {"slack", slack},
        {"overrun", overrun},
        {"use_after_free", use_after_free},
        {"visit", visit},
    };
    size_t n;
    CHECK(argc == 2);
    for (n = 0; n < LENGTH(cases); n++) {
        if (strcmp(argv[1], cases[n].name) == 0) {
            cases[n].run();
            return 0;
        }
    }
    return 2;
}
