/*
 * Host memory and the process: pageable memory without a device, and in children after fork.
 *
 * A child that hangs is ended by its alarm, and the parent sees that.
 */
#include "../check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HAMMERS = 3, FORKS = 50, HANGS_AFTER_SECONDS = 20 };

#define PAGEABLE GENESIS_HOST_KIND_PAGEABLE
#define PINNED GENESIS_HOST_KIND_PINNED

static volatile int is_over;

static unsigned char *host_block_of(size_t size)
{
    unsigned char *block = (unsigned char *)genesis_host_malloc(size, PAGEABLE);
    CHECK(block != NULL);
    fill(block, size, 7);
    return block;
}

static void check_child(pid_t child)
{
    int status = -1;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *hammer(void *unused)
{
    (void)unused;
    while (!is_over) {
        genesis_host_free(host_block_of(100));
        genesis_host_free(host_block_of(5 * MIB));
        CHECK_OK(genesis_host_cache_empty(PAGEABLE));
    }
    return NULL;
}

/* What a child does with what it inherited, and with memory of its own; so do its children. */
static void live_on(unsigned char *inherited, int generations)
{
    alarm(HANGS_AFTER_SECONDS);
    CHECK(is_filled(inherited, 100000, 7));
    unsigned char *own = host_block_of(100000);
    CHECK(own != inherited);
    genesis_host_free(inherited);
    CHECK(is_filled(inherited, 100000, 7));
    genesis_stats stats;
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_host_stats_get(PAGEABLE, &stats));
    CHECK(stats.allocations == 1 && stats.frees == 0);
    if (generations > 1) {
        const pid_t child = fork();
        if (child == 0) {
            live_on(own, generations - 1);
            _exit(0);
        }
        check_child(child);
    }
    genesis_host_free(own);
    CHECK_OK(genesis_host_release(host_block_of(3 * MIB)));
    CHECK_REPORTS(GENESIS_STATUS_FORKED_CHILD, genesis_host_malloc(100, PINNED));
}

static void fork_is_survived(void)
{
    unsigned char *block = host_block_of(100000);
    pthread_t threads[HAMMERS];
    /* The device, too, so that a child may not use it. */
    genesis_free(block_of(100, NULL), 0, NULL);
    for (int index = 0; index < HAMMERS; index++) {
        CHECK(pthread_create(&threads[index], NULL, hammer, NULL) == 0);
    }
    for (int count = 0; count < FORKS; count++) {
        const pid_t child = fork();
        if (child == 0) {
            live_on(block, 3);
            _exit(0);
        }
        check_child(child);
    }
    is_over = 1;
    for (int index = 0; index < HAMMERS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(is_filled(block, 100000, 7));
    genesis_host_free(block);
}

/* There is no device, and no driver either; nothing is said of that. */
static void no_device_is_needed(void)
{
    genesis_host_free(host_block_of(100000));
    CHECK_REPORTS(GENESIS_STATUS_DRIVER_UNAVAILABLE, genesis_host_malloc(100, PINNED));
    /* What memory is like is settled now. */
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_option_set("GENESIS_HOST_POOL_TYPE", "Round"));
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
}

static void wrong_settings_fail_every_call(void)
{
    for (int count = 0; count < 2; count++) {
        CHECK_REPORTS(GENESIS_STATUS_INVALID_CONFIGURATION, genesis_host_malloc(100, PAGEABLE));
        CHECK_MESSAGE("GENESIS_HOST_POOL_TYPE=Elastic: not a pool type of host memory");
        CHECK_FAILS(GENESIS_STATUS_INVALID_CONFIGURATION, genesis_host_cache_empty(PAGEABLE));
    }
    int here = 0;
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_host_free(&here));
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    if (strcmp(arguments[1], "fork") == 0) {
        fork_is_survived();
    } else if (strcmp(arguments[1], "misconfigured") == 0) {
        wrong_settings_fail_every_call();
    } else {
        no_device_is_needed();
    }
    return 0;
}
