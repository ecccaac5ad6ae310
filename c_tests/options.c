/* Options before and after the first use: names, values, and what is in force. */
#include "check.h"

static void check_option(const char *name, const char *expected)
{
    char value[64];
    memset(value, 'x', sizeof value);
    CHECK_OK(genesis_option_get(name, value, sizeof value));
    if (strcmp(value, expected) != 0) {
        fprintf(stderr, "%s is %s, not %s\n", name, value, expected);
        exit(1);
    }
}

static void wrong_names_and_values(void)
{
    char value[64];
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("GENESIS_LGO", "off"));
    CHECK_MESSAGE("did you mean GENESIS_LOG?");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("", "off"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_option_get("GENESIS_LGO", value, sizeof value));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("GENESIS_LOG", "loud"));
    CHECK_MESSAGE("off, error, warn, info, debug");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_option_set("GENESIS_MEMORY_FRACTION", "2"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_option_set("GENESIS_MEMORY_LIMIT", "many"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("GENESIS_LOG", "\xff\xfe"));
    CHECK_MESSAGE("UTF-8");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("\xff", "off"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set(NULL, "off"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set("GENESIS_LOG", NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_set(NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_get(NULL, value, sizeof value));
    check_option("GENESIS_LOG", "warn");
}

static void buffers(void)
{
    char value[8];
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_get("GENESIS_LOG", NULL, 64));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_option_get("GENESIS_LOG", NULL, 0));
    /* "warn" and its end take five bytes. */
    for (size_t capacity = 0; capacity < 5; capacity++) {
        memset(value, 'x', sizeof value);
        CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                    genesis_option_get("GENESIS_LOG", value, capacity));
        CHECK(is_filled((unsigned char *)value, sizeof value, 'x'));
    }
    memset(value, 'x', sizeof value);
    CHECK_OK(genesis_option_get("GENESIS_LOG", value, 5));
    CHECK(strcmp(value, "warn") == 0 && value[5] == 'x');
}

static void before_the_first_use(void)
{
    wrong_names_and_values();
    buffers();
    check_option("GENESIS_BACKEND", "host");
    const char *strategy = getenv("GENESIS_POOL_TYPE");
    if (strategy != NULL) {
        check_option("GENESIS_POOL_TYPE", strategy);
    }
    /* Any option may be set, and the last word counts. */
    CHECK_OK(genesis_option_set("GENESIS_SIM_DEVICES", "5"));
    CHECK_OK(genesis_option_set("GENESIS_SIM_DEVICES", " 3 "));
    check_option("GENESIS_SIM_DEVICES", "3");
    CHECK_OK(genesis_option_set("GENESIS_SIM_MEMORY", "256MB"));
    check_option("GENESIS_SIM_MEMORY", "256MiB");
    CHECK_OK(genesis_option_set("GENESIS_CACHE_SIZE", "1GB"));
    check_option("GENESIS_CACHE_SIZE", "1GiB");
    CHECK_OK(genesis_option_set("GENESIS_CACHE_SIZE", ""));
    check_option("GENESIS_CACHE_SIZE", "unlimited");
}

static void what_was_set_is_in_force(void)
{
    int count = 0;
    size_t total_bytes = 0, bytes = 0;
    CHECK_OK(genesis_device_count_get(&count));
    CHECK(count == 3);
    for (int device = 0; device < count; device++) {
        CHECK_OK(genesis_memory_info_get(device, NULL, &total_bytes));
        CHECK(total_bytes == 256 * MIB);
    }
    CHECK_OK(genesis_cache_limit_get(2, &bytes));
    CHECK(bytes == SIZE_MAX);
    /* Devices are apart. */
    void *block = genesis_malloc(1000, 2, STREAM(0));
    CHECK(block != NULL);
    CHECK(stats_of(2).requested_bytes.current == 1000);
    CHECK(stats_of(0).requested_bytes.current == 0);
    genesis_free(block, 2, STREAM(0));
    CHECK(genesis_malloc(1000, 3, STREAM(0)) == NULL);
}

static void after_the_first_use(void)
{
    static const char *const fixed[][2] = {
        {"GENESIS_POOL_TYPE", "Naive"}, {"GENESIS_BACKEND", "host"}, {"GENESIS_SIM_DEVICES", "1"}};
    for (size_t index = 0; index < LENGTH(fixed); index++) {
        CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                    genesis_option_set(fixed[index][0], fixed[index][1]));
        CHECK_MESSAGE("cannot be changed once the library has started");
    }
    check_option("GENESIS_SIM_DEVICES", "3");
    wrong_names_and_values();
    buffers();

    size_t bytes = 0;
    double fraction = 0.0;
    CHECK_OK(genesis_option_set("GENESIS_MEMORY_LIMIT", "64MB"));
    CHECK_OK(genesis_option_set("GENESIS_CACHE_SIZE", "8MB"));
    CHECK_OK(genesis_option_set("GENESIS_MEMORY_FRACTION", "0.5"));
    for (int device = 0; device < 3; device++) {
        CHECK_OK(genesis_memory_limit_get(device, &bytes));
        CHECK(bytes == 64 * MIB);
        CHECK_OK(genesis_cache_limit_get(device, &bytes));
        CHECK(bytes == 8 * MIB);
        CHECK_OK(genesis_memory_fraction_get(device, &fraction));
        CHECK(fraction > 0.49 && fraction < 0.51);
    }
    check_option("GENESIS_MEMORY_LIMIT", "64MiB");
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
    CHECK(genesis_malloc(100 * MIB, 0, STREAM(0)) == NULL);
    CHECK_OK(genesis_option_set("GENESIS_MEMORY_LIMIT", ""));
    check_option("GENESIS_MEMORY_LIMIT", "unlimited");
    genesis_free(block_of(100 * MIB, STREAM(0)), 0, STREAM(0));
}

int main(void)
{
    before_the_first_use();
    what_was_set_is_in_force();
    after_the_first_use();
    return 0;
}
