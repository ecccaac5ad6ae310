/*
 * Recorded processes that end in every way, for tests/trace.rs: it starts them with
 * GENESIS_TRACE set and reads what is left.
 *
 * A case allocates blocks of ROUND bytes before a mark (a flush, a fork) and of 2 * ROUND after.
 */
#define _GNU_SOURCE

#include "../check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 1000, ROUND = 512, MANY = 400000, HANGS_AFTER_SECONDS = 20 };

static void allocate(int count, size_t size)
{
    for (int index = 0; index < count; index++) {
        block_of(size, STREAM(0));
    }
}

/* So many blocks come and go. */
static void churn(int count)
{
    for (int index = 0; index < count; index++) {
        genesis_free(block_of(ROUND, STREAM(0)), 0, STREAM(0));
    }
}

static void without_a_core(void)
{
    const struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
}

static void end_well(void)
{
    allocate(BLOCKS, ROUND);
}

static void crash(void)
{
    without_a_core();
    allocate(BLOCKS, ROUND);
    CHECK_OK(genesis_trace_flush());
    allocate(BLOCKS, (size_t)2 * ROUND);
    abort();
}

/* The test ends the input once the library has written everything by itself. */
static void crash_later(void)
{
    without_a_core();
    allocate(BLOCKS, ROUND);
    CHECK(getchar() == EOF);
    abort();
}

static void leave_at_once(void)
{
    churn(MANY);
    _exit(0);
}

static void child(void)
{
    alarm(HANGS_AFTER_SECONDS);
    CHECK(genesis_malloc(ROUND, 0, STREAM(0)) == NULL);
    CHECK(genesis_malloc(0, 0, STREAM(0)) == NULL);
    /* More than any buffer holds. */
    for (int index = 0; index < MANY; index++) {
        genesis_free(&index, 0, STREAM(0));
    }
    CHECK_FAILS(GENESIS_STATUS_FORKED_CHILD, genesis_trace_start("child.gtr"));
    CHECK_FAILS(GENESIS_STATUS_FORKED_CHILD, genesis_trace_flush());
    CHECK_FAILS(GENESIS_STATUS_FORKED_CHILD, genesis_trace_stop());
    CHECK_FAILS(GENESIS_STATUS_FORKED_CHILD, genesis_trace_iteration(1));
    exit(0);
}

static void fork_in_the_middle(void)
{
    allocate(BLOCKS, ROUND);
    for (int index = 0; index < 5; index++) {
        int status = -1;
        const pid_t forked = fork();
        if (forked == 0) {
            child();
        }
        CHECK(waitpid(forked, &status, 0) == forked);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    allocate(BLOCKS, (size_t)2 * ROUND);
}

/* The disk is full after 40,000 bytes, and the program never notices. */
static void run_out_of_disk(void)
{
    const struct rlimit limit = {40000, 40000};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    allocate(BLOCKS, ROUND);
    CHECK_OK(genesis_trace_flush());
    churn(MANY);
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_trace_flush());
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_trace_stop());
    genesis_last_error_clear();
    churn(MANY);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
}

static void never_mine(int signal)
{
    char name[16] = "";
    (void)signal;
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strncmp(name, "genesis", 7) == 0) {
        _exit(1);
    }
}

/* The signals that the thread `id` blocks, one bit each. */
static unsigned long long blocked_by(const char *id)
{
    char path[64];
    char line[256];
    unsigned long long blocked = 0;
    int is_known = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", id);
    FILE *status = fopen(path, "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "SigBlk:", 7) == 0) {
            blocked = strtoull(line + 7, NULL, 16);
            is_known = 1;
        }
    }
    CHECK(is_known);
    fclose(status);
    return blocked;
}

/* Signals to the process go to threads of its own: the library's take none. */
static void be_signalled(void)
{
    sigset_t usr1;
    int threads = 0;
    CHECK(signal(SIGUSR1, never_mine) != SIG_ERR);
    allocate(BLOCKS, ROUND);
    /* Blocked here, they would go to any thread that lets them. */
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        if (task->d_name[0] != '.') {
            CHECK((blocked_by(task->d_name) >> (SIGUSR1 - 1) & 1) == 1);
            threads++;
        }
    }
    closedir(tasks);
    CHECK(threads >= 2);
    CHECK(sigpending(&usr1) == 0 && sigismember(&usr1, SIGUSR1) == 1);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"end_well", end_well},
        {"crash", crash},
        {"crash_later", crash_later},
        {"leave_at_once", leave_at_once},
        {"fork_in_the_middle", fork_in_the_middle},
        {"run_out_of_disk", run_out_of_disk},
        {"be_signalled", be_signalled},
    };
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (count == 2 && strcmp(arguments[1], cases[index].name) == 0) {
            cases[index].run();
            return 0;
        }
    }
    CHECK(!"the case is known");
    return 1;
}
