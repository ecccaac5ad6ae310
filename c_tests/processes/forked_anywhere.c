/*
 * A fork while another thread is stopped anywhere in the library: every function returns in the
 * child, in time. STATE ROUNDS FUNCTION...
 *
 * A thread does what the state says, again and again. A signal at a drawn moment stops it, whatever
 * it holds; then the process forks. What the thread holds nobody releases in the child. The handler
 * waits for a moment only, because the C library's own locks are waited for by fork.
 */
#define _GNU_SOURCE

#include "../check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANGS_AFTER_SECONDS = 20, STOPPED_MICROSECONDS = 20000, MOST_PAUSE_NANOSECONDS = 400000 };

typedef uintptr_t function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static int is_stopped;
static int is_released;
static int is_over;
static uint64_t draw = 1;
/* The number of the function that the child calls: the parent reads it. */
static volatile int *called;

static uint64_t microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void stop(int number)
{
    const uint64_t until = microseconds() + STOPPED_MICROSECONDS;
    (void)number;
    __atomic_store_n(&is_stopped, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&is_released, __ATOMIC_ACQUIRE) && microseconds() < until) {
    }
}

static void ignore(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data, (void)level, (void)message;
}

static void set_options(void)
{
    (void)genesis_option_set("GENESIS_LOG", "off");
}

static void annotate(void)
{
    (void)genesis_mark_add("mark");
}

static void set_callbacks(void)
{
    (void)genesis_log_callback_set(ignore, NULL);
    (void)genesis_forecast_callback_set(NULL, NULL);
}

static void use_device(void)
{
    void *block = genesis_malloc(MIB, 0, STREAM(1));
    genesis_free(block, 0, STREAM(1));
    (void)genesis_cache_empty(0);
}

static void use_host(void)
{
    genesis_host_free(genesis_host_malloc(MIB, GENESIS_HOST_KIND_PAGEABLE));
}

static void profile(void)
{
    (void)genesis_profile_start();
    use_device();
    (void)genesis_profile_write("/dev/null");
    (void)genesis_profile_stop();
}

static void record(void)
{
    (void)genesis_trace_start("/dev/null");
    use_device();
    (void)genesis_trace_stop();
}

static void pause_memory(void)
{
    (void)genesis_tag_push("tag");
    void *block = genesis_malloc(3 * MIB, 0, STREAM(1));
    (void)genesis_tag_pop();
    (void)genesis_tag_pause_with("tag", GENESIS_BACKUP_DISK, 0);
    (void)genesis_tag_resume("tag");
    genesis_free(block, 0, STREAM(1));
}

/* Each is a line of the log. */
static void be_wrong(void)
{
    genesis_free((void *)0x1000, 0, STREAM(1));
    genesis_host_free((void *)0x1000);
}

static void publish(void)
{
    (void)genesis_option_set("GENESIS_TOP", "on");
    (void)genesis_option_set("GENESIS_TOP", "off");
}

/* What the thread does; before it begins the library may have been used. */
static const struct state {
    const char *name;
    void (*act)(void);
    int is_used_before;
} STATES[] = {
    {"options", set_options, 0},   {"annotations", annotate, 0}, {"callbacks", set_callbacks, 0},
    {"first_use", use_device, 0},  {"first_host", use_host, 0},  {"first_error", be_wrong, 0},
    {"first_profile", profile, 0}, {"misses", use_device, 1},    {"host", use_host, 1},
    {"profile", profile, 1},       {"trace", record, 1},         {"pause", pause_memory, 1},
    {"errors", be_wrong, 1},       {"publish", publish, 1},
};

static void *repeat(void *argument)
{
    const struct state *state = (const struct state *)argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        state->act();
    }
    return NULL;
}

/* Calls each function with as many zeros as any takes, if the child is refused. One that is not is
 * a process like any other: what needs a heap makes one. */
static void call_all(void *library, int count, char **names)
{
    *called = -1;
    void *block = genesis_malloc(1000, 0, STREAM(0));
    const int is_refused = block == NULL;
    CHECK(!is_refused || genesis_last_error_get() == GENESIS_STATUS_FORKED_CHILD);
    for (int index = 0; is_refused && index < count; index++) {
        void *const found = dlsym(library, names[index]);
        function *call = NULL;
        *called = index;
        memcpy(&call, &found, sizeof call);
        (void)call(0, 0, 0, 0, 0, 0);
    }
    *called = -2;
    set_options();
    annotate();
    be_wrong();
    void *host = genesis_host_malloc(1000, GENESIS_HOST_KIND_PAGEABLE);
    CHECK(host != NULL || genesis_last_error_get() == GENESIS_STATUS_FORKED_CHILD);
    CHECK(genesis_host_malloc(SIZE_MAX / 4, GENESIS_HOST_KIND_PAGEABLE) == NULL);
    genesis_host_free(host);
    genesis_free(block, 0, STREAM(0));
}

static void wait_for(pid_t child, const char *state, char **names)
{
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        const char *name = *called >= 0 ? names[*called] : "before or after all functions";
        fprintf(stderr, "%s: %s: wait status %#x\n", state, name, (unsigned int)status);
        _exit(1);
    }
}

/* Forks once while the thread is stopped. */
static void fork_once(pthread_t thread, void *library, const char *state, int count, char **names)
{
    struct timespec pause = {0, 0};
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    pause.tv_nsec = (long)((draw >> 33) % MOST_PAUSE_NANOSECONDS);
    nanosleep(&pause, NULL);
    __atomic_store_n(&is_released, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&is_stopped, 0, __ATOMIC_RELEASE);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    while (!__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    const pid_t child = fork();
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        alarm(HANGS_AFTER_SECONDS);
        if (getenv("FORKED_SAYS") == NULL) {
            CHECK(nowhere >= 0 && dup2(nowhere, STDERR_FILENO) == STDERR_FILENO);
        }
        call_all(library, count, names);
        _exit(0);
    }
    __atomic_store_n(&is_released, 1, __ATOMIC_RELEASE);
    wait_for(child, state, names);
}

/* One process with the thread, which forks so often. */
static void play(const struct state *state, int forks, void *library, int count, char **names)
{
    pthread_t thread;
    if (state->is_used_before) {
        genesis_free(block_of(1000, STREAM(0)), 0, STREAM(0));
    }
    CHECK(pthread_create(&thread, NULL, repeat, (void *)(uintptr_t)state) == 0);
    for (int index = 0; index < forks; index++) {
        fork_once(thread, library, state->name, count, names);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* The first use is once in a process: each round in one of its own. */
static void play_afresh(const struct state *state, int rounds, void *library, int count,
                        char **names)
{
    for (int index = 0; index < rounds; index++) {
        const pid_t child = fork();
        draw += (uint64_t)index;
        if (child == 0) {
            play(state, 1, library, count, names);
            _exit(0);
        }
        wait_for(child, state->name, names);
    }
}

int main(int count, char **arguments)
{
    void *const library = dlopen(NULL, RTLD_NOW);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    action.sa_flags = SA_RESTART;
    CHECK(library != NULL && count > 3 && sigaction(SIGUSR1, &action, NULL) == 0);
    called = (volatile int *)mmap(NULL, sizeof *called, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(called != MAP_FAILED);
    draw = microseconds();
    const int rounds = (int)strtol(arguments[2], NULL, 10);
    for (size_t index = 0; index < LENGTH(STATES); index++) {
        const struct state *state = &STATES[index];
        if (strcmp(state->name, arguments[1]) == 0) {
            (state->is_used_before ? play : play_afresh)(state, rounds, library, count - 3,
                                                         arguments + 3);
            return 0;
        }
    }
    CHECK(!"the state is known");
    return 1;
}
