/*
 * The log callback while something is being made ready: it may call the library then, too. Each
 * case is a process of its own, which a signal ends if the library waits for itself.
 */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_SECONDS 60

static int messages;

static void touch_everything(void *user_data, genesis_log_level level, const char *message)
{
    genesis_stats stats;
    (void)user_data;
    (void)level;
    (void)message;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    messages++;
    /* What fails has something to say again, of which this is not told. */
    (void)genesis_stats_get(0, &stats);
    genesis_free(genesis_malloc(100, 0, STREAM(0)), 0, STREAM(0));
    genesis_host_free(genesis_host_malloc(100, GENESIS_HOST_KIND_PAGEABLE));
    genesis_host_free(genesis_host_malloc(100, GENESIS_HOST_KIND_PINNED));
    genesis_host_free(&stats);
}

/* Guard pages are told when the device is made ready, and its strategy before. */
static void device(void)
{
    genesis_free(block_of(100, STREAM(0)), 0, STREAM(0));
}

/* Pinned memory is a device's, which has something to say as well. */
static void pinned(void)
{
    genesis_host_free(genesis_host_malloc(100, GENESIS_HOST_KIND_PINNED));
}

static void nothing_set_right(void)
{
    CHECK(genesis_host_malloc(100, GENESIS_HOST_KIND_PAGEABLE) == NULL);
    CHECK(genesis_host_malloc(100, GENESIS_HOST_KIND_PINNED) == NULL);
    CHECK(genesis_malloc(100, 0, STREAM(0)) == NULL);
}

static void in_a_process(const char *name, const char *value, void (*body)(void))
{
    int status = 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(PATIENCE_SECONDS);
        CHECK(setenv("GENESIS_LOG", "debug", 1) == 0 && setenv(name, value, 1) == 0);
        CHECK_OK(genesis_log_callback_set(touch_everything, NULL));
        body();
        CHECK(messages > 0);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    in_a_process("GENESIS_DEBUG", "guard", device);
    in_a_process("GENESIS_DEBUG", "guard", pinned);
    in_a_process("GENESIS_PAGE_SIZE", "nonsense", nothing_set_right);
    return 0;
}
