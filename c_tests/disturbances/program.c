/*
 * Much of the library in two processes, for tests/disturbances.rs: FOLDER [pest | patient]
 *
 * Both allocate from two threads, write files, pause memory into files and resume it, and have host
 * memory taken by a thread; then one imports a block of the other, and each takes what the other
 * has cached. Every check of contents and counts is made here; the files are the test's to read.
 * With "pest" a thread of each process sends signals to the others all the time; their handler has
 * no SA_RESTART, so that system calls are interrupted.
 */
#define _GNU_SOURCE

#include "../check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, BLOCKS = 16, SUBJECTS = 2, MOST_TRIES = 100, HANGS_AFTER_SECONDS = 60 };

/* The device has 1 GiB. The second is within a process's part of it, and must be given some of the
 * first. */
#define CACHED (700 * MIB)
#define TAKEN (450 * MIB)
#define SHARED (5 * MIB + 512)
#define PAUSED (3 * MIB)

/* The threads that signals are sent to, while they are subjects. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t subjects[SUBJECTS];
static int is_subject[SUBJECTS];
static int is_over;
static unsigned long arrived;

static void count_signal(int number)
{
    (void)number;
    __atomic_add_fetch(&arrived, 1, __ATOMIC_RELAXED);
}

/* Sends signals, a few tens of microseconds apart. */
static void *pest(void *argument)
{
    const struct timespec pause = {0, 20000};
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&lock);
        for (int index = 0; index < SUBJECTS; index++) {
            if (is_subject[index]) {
                pthread_kill(subjects[index], SIGUSR1);
            }
        }
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
    }
    return argument;
}

/* The calling thread is sent signals from now on, or no thread of that number any more. */
static void set_subject(int index, int is_one)
{
    pthread_mutex_lock(&lock);
    subjects[index] = pthread_self();
    is_subject[index] = is_one;
    pthread_mutex_unlock(&lock);
}

static pthread_t start_pest(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_signal;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pest, NULL) == 0);
    return thread;
}

/* The test's own messages, whatever interrupts them. */
static void tell(int pipe, const void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        const ssize_t written = write(pipe, (const char *)bytes + done, count - done);
        CHECK(written > 0 || errno == EINTR);
        done += written > 0 ? (size_t)written : 0;
    }
}

static void hear(int pipe, void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        const ssize_t had = read(pipe, (char *)bytes + done, count - done);
        CHECK(had > 0 || (had < 0 && errno == EINTR));
        done += had > 0 ? (size_t)had : 0;
    }
}

static void allocate_on(genesis_stream stream)
{
    void *blocks[BLOCKS] = {0};
    for (size_t round = 0; round < ROUNDS; round++) {
        void **block = &blocks[round * 7 % BLOCKS];
        genesis_free(*block, 0, stream);
        *block = block_of(1 + round * 30011 % MIB, stream);
    }
    for (size_t index = 0; index < BLOCKS; index++) {
        genesis_free(blocks[index], 0, stream);
    }
}

static void *allocate_beside(void *argument)
{
    set_subject(1, 1);
    allocate_on(STREAM(1));
    set_subject(1, 0);
    return argument;
}

static void allocate_from_threads(void)
{
    pthread_t thread;
    /* The profile begins with the first allocation's end. */
    allocate_on(STREAM(0));
    CHECK(pthread_create(&thread, NULL, allocate_beside, NULL) == 0);
    allocate_on(STREAM(0));
    CHECK(pthread_join(thread, NULL) == 0);
}

static void pause_and_resume(int backup)
{
    CHECK_OK(genesis_tag_push("weights"));
    unsigned char *block = block_of(PAUSED, STREAM(0));
    CHECK_OK(genesis_tag_pop());
    fill(block, PAUSED, 0x5a);
    CHECK_OK(genesis_tag_pause_with("weights", (genesis_backup)backup, 0));
    CHECK_OK(genesis_tag_resume("weights"));
    CHECK(is_filled(block, PAUSED, 0x5a));
    genesis_free(block, 0, STREAM(0));
}

/* A path in the folder, which the test removes. */
static const char *path(const char *folder, const char *role, const char *name)
{
    static char text[4096];
    CHECK(snprintf(text, sizeof text, "%s/%s-%s", folder, role, name) < (int)sizeof text);
    return text;
}

static void write_files(const char *folder, const char *role)
{
    const char *trace = path(folder, role, "trace.gtr");
    CHECK_OK(genesis_trace_start(trace));
    const int file = open(trace, O_RDONLY);
    CHECK(file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    close(file);
    allocate_on(STREAM(0));
    CHECK_OK(genesis_trace_flush());
    allocate_on(STREAM(0));
    CHECK_OK(genesis_trace_stop());
    CHECK_OK(genesis_profile_write(path(folder, role, "profile.json")));
    CHECK_OK(genesis_snapshot_write(path(folder, role, "snapshot.pickle")));
    CHECK_OK(genesis_plan_write(path(folder, role, "plan")));
}

static void use_host_memory(void)
{
    CHECK_OK(genesis_host_preallocate(GENESIS_HOST_KIND_PAGEABLE, 8 * MIB, 1));
    CHECK_OK(genesis_host_preallocate_wait());
    unsigned char *block = (unsigned char *)genesis_host_malloc(MIB, GENESIS_HOST_KIND_PINNED);
    CHECK(block != NULL);
    fill(block, MIB, 3);
    CHECK(is_filled(block, MIB, 3));
    genesis_host_free(block);
}

/* What each process does for itself. */
static void use(const char *folder, const char *role)
{
    allocate_from_threads();
    write_files(folder, role);
    pause_and_resume(GENESIS_BACKUP_DISK);
    pause_and_resume(GENESIS_BACKUP_PAGEABLE);
    use_host_memory();
    CHECK_OK(genesis_option_set("GENESIS_TOP", "on"));
    CHECK_OK(genesis_option_set("GENESIS_TOP", "off"));
    CHECK_OK(genesis_cache_empty(0));
}

/* Leaves memory cached, on a stream that lasts: so it can be given to the other process. */
static void cache(void)
{
    genesis_free(block_of(CACHED, LEGACY_STREAM), 0, LEGACY_STREAM);
}

/* Takes memory that the other process has cached. With signals all the time it may not run in time
 * to answer; then it is asked again. */
static void take(int tries)
{
    void *block = NULL;
    for (int index = 0; block == NULL && index < tries; index++) {
        block = genesis_malloc(TAKEN, 0, LEGACY_STREAM);
    }
    CHECK(block != NULL);
    genesis_free(block, 0, LEGACY_STREAM);
}

static void export_to(int out, int in)
{
    genesis_block_handle handle;
    unsigned char *block = block_of(SHARED, STREAM(0));
    char word;
    fill(block, SHARED, 1);
    CHECK_OK(genesis_block_export(block, &handle));
    tell(out, &handle, sizeof handle);
    hear(in, &word, 1);
    CHECK(is_filled(block, SHARED, 2));
    genesis_free(block, 0, STREAM(0));
    /* A release needs a moment to arrive. */
    const struct timespec moment = {0, 1000000};
    while (stats_of(0).active_bytes.current != 0) {
        nanosleep(&moment, NULL);
    }
}

static void import_from(int in, int out)
{
    genesis_block_handle handle;
    void *block = NULL;
    size_t size = 0;
    hear(in, &handle, sizeof handle);
    CHECK_OK(genesis_block_import(&handle, -1, &block, &size));
    CHECK(size >= SHARED && is_filled((unsigned char *)block, SHARED, 1));
    fill((unsigned char *)block, SHARED, 2);
    CHECK_OK(genesis_block_close(block));
    tell(out, "r", 1);
}

/* One of the two processes, with its ends of the pipes. The first one exports. */
static void play(const char *folder, int is_first, int in, int out, int tries)
{
    char word;
    use(folder, is_first ? "first" : "second");
    if (is_first) {
        export_to(out, in);
        cache();
        tell(out, "t", 1);
        hear(in, &word, 1);
    } else {
        import_from(in, out);
        hear(in, &word, 1);
        take(tries);
        tell(out, "t", 1);
    }
    const genesis_stats stats = stats_of(0);
    CHECK(stats.allocations == stats.frees && stats.requested_bytes.current == 0);
    tell(STDOUT_FILENO, is_first ? "first is done\n" : "second is done\n", is_first ? 14 : 15);
}

int main(int count, char **arguments)
{
    int there[2];
    int back[2];
    CHECK(count >= 2 && pipe(there) == 0 && pipe(back) == 0);
    const int has_pest = count == 3 && strcmp(arguments[2], "pest") == 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    alarm(HANGS_AFTER_SECONDS);
    /* Each has its own ends alone, so that it sees when the other one has ended. */
    const int in = child == 0 ? there[0] : back[0];
    const int out = child == 0 ? back[1] : there[1];
    close(child == 0 ? back[0] : there[0]);
    close(child == 0 ? there[1] : back[1]);
    pthread_t thread = pthread_self();
    set_subject(0, 1);
    if (has_pest) {
        thread = start_pest();
    }
    play(arguments[1], child != 0, in, out, count == 3 ? MOST_TRIES : 1);
    if (has_pest) {
        __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
        CHECK(pthread_join(thread, NULL) == 0);
        fprintf(stderr, "%lu signals\n", arrived);
    }
    int status = 0;
    if (child != 0) {
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
