/*
 * Fork: a child of a process that has used the library is refused at once, whatever the
 * parent's threads were doing; a child forked before the first use is a process like any other.
 *
 * A child that hangs is ended by its alarm, and the parent sees that.
 */
#include "../check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HAMMERS = 3, FORKS = 50, HANGS_AFTER_SECONDS = 20 };

static unsigned char *inherited;

static int free_nothing(void *user_data, int device, size_t wanted_bytes)
{
    (void)user_data;
    (void)device;
    (void)wanted_bytes;
    return 0;
}

static void ignore(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

/* Ends with status 0, in time. */
static void check_child(pid_t child)
{
    int status = -1;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the child ended with wait status %#x\n", (unsigned int)status);
        exit(1);
    }
}

#define FORKED(call) CHECK_FAILS(GENESIS_STATUS_FORKED_CHILD, call)

static void be_refused(void)
{
    genesis_block_info info;
    genesis_stats stats;
    size_t bytes = 7;
    double fraction = 0.0;
    uint64_t id = 0;
    int count = 0;
    char text[64];
    const char *name = NULL;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    genesis_forecast forecast;
    forecast.struct_size = sizeof forecast;

    genesis_last_error_clear();
    CHECK(genesis_malloc(1000, 0, STREAM(0)) == NULL);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_FORKED_CHILD);
    CHECK(genesis_malloc(0, 0, STREAM(0)) == NULL);
    genesis_free(NULL, 0, STREAM(0));
    genesis_free(inherited, 0, STREAM(0));
    genesis_free(inherited, 0, STREAM(0));
    FORKED(genesis_block_record_stream(inherited, STREAM(1)));
    FORKED(genesis_block_info_get(inherited, &info));
    FORKED(genesis_out_of_memory_callback_add(free_nothing, NULL, &id));
    FORKED(genesis_out_of_memory_callback_remove(1));
    FORKED(genesis_log_callback_set(ignore, NULL));
    FORKED(genesis_compaction_callback_set(NULL, NULL));
    FORKED(genesis_device_count_get(&count));
    FORKED(genesis_device_name_get(0, text, sizeof text));
    FORKED(genesis_backend_get(&name));
    FORKED(genesis_option_set("GENESIS_LOG", "off"));
    FORKED(genesis_option_get("GENESIS_LOG", text, sizeof text));
    FORKED(genesis_memory_info_get(0, &bytes, &bytes));
    FORKED(genesis_memory_limit_set(0, 0));
    FORKED(genesis_memory_limit_get(0, &bytes));
    FORKED(genesis_memory_fraction_set(0, 1.0));
    FORKED(genesis_memory_fraction_get(0, &fraction));
    FORKED(genesis_cache_limit_set(0, 0));
    FORKED(genesis_memory_preallocate(0, MIB, NULL));
    FORKED(genesis_plan_wait());
    FORKED(genesis_plan_write("never.plan"));
    FORKED(genesis_cache_limit_get(0, &bytes));
    FORKED(genesis_cache_empty(-1));
    FORKED(genesis_cache_trim(0, 0, &bytes));
    FORKED(genesis_garbage_collect(0, &bytes));
    FORKED(genesis_memory_compact(0, &bytes));
    FORKED(genesis_tag_push("weights"));
    FORKED(genesis_tag_pop());
    FORKED(genesis_tag_pause("weights", 1));
    FORKED(genesis_tag_resume("weights"));
    FORKED(genesis_tag_push_with("weights", GENESIS_BACKUP_DISK));
    FORKED(genesis_tag_pause_with("weights", GENESIS_BACKUP_NONE, 0));
    FORKED(genesis_tags_resume());
    FORKED(genesis_block_pause(&bytes));
    FORKED(genesis_block_resume(&bytes));
    FORKED(genesis_tag_generation_get("weights", &id));
    FORKED(genesis_peer_access_enable(0, 0));
    FORKED(genesis_stats_get(0, &stats));
    FORKED(genesis_forecast_get(0, &forecast));
    FORKED(genesis_forecast_callback_set(NULL, NULL));
    FORKED(genesis_trace_iteration(1));
    FORKED(genesis_stats_reset_peak(0));
    FORKED(genesis_largest_allocations_get(0, 0, NULL, 0, &bytes));
    CHECK(bytes == 7);
    /* What needs no device still answers. */
    CHECK(genesis_version_get()[0] != '\0');
    CHECK(genesis_status_text_get(GENESIS_STATUS_FORKED_CHILD)[0] != '\0');
}

static void use_it(void)
{
    unsigned char *block = block_of(MIB, STREAM(0));
    fill(block, MIB, 9);
    CHECK(is_filled(block, MIB, 9));
    genesis_free(block, 0, STREAM(0));
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
}

/* Forks, has the child do `work` and leave through exit, and waits for it. */
static void in_child(void (*work)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(HANGS_AFTER_SECONDS);
        work();
        exit(0);
    }
    check_child(child);
}

static void be_refused_in_a_grandchild(void)
{
    be_refused();
    in_child(be_refused);
}

/* What a child may do once the library refuses: start a program afresh. */
static void exec_afresh(void)
{
    execl("/proc/self/exe", "fork", "use", (char *)NULL);
}

/* A block that is paused while there are children; NULL where there are no tags. */
static unsigned char *paused_block(void)
{
    if (!strategy_is("Elastic")) {
        return NULL;
    }
    CHECK_OK(genesis_tag_push("weights"));
    unsigned char *block = block_of(MIB, STREAM(0));
    CHECK_OK(genesis_tag_pop());
    fill(block, MIB, 0x5a);
    CHECK_OK(genesis_tag_pause("weights", 1));
    return block;
}

static void after_use(void)
{
    inherited = block_of(4096, STREAM(0));
    fill(inherited, 4096, 0x3c);
    unsigned char *paused = paused_block();
    in_child(be_refused);
    in_child(be_refused_in_a_grandchild);
    in_child(exec_afresh);
    /* The parent goes on, its block untouched by the children's frees. */
    CHECK(is_filled(inherited, 4096, 0x3c));
    if (paused != NULL) {
        CHECK_OK(genesis_tag_resume("weights"));
        CHECK(is_filled(paused, MIB, 0x5a));
        genesis_free(paused, 0, STREAM(0));
    }
    CHECK(stats_of(0).requested_bytes.current == 4096);
    genesis_free(inherited, 0, STREAM(0));
    use_it();
}

static void before_use(void)
{
    /* None of these starts the library. */
    CHECK(genesis_version_get()[0] != '\0');
    CHECK(genesis_malloc(0, 0, STREAM(0)) == NULL);
    CHECK_OK(genesis_option_set("GENESIS_SIM_DEVICES", "2"));
    in_child(use_it);
    in_child(after_use);
    use_it();
    in_child(be_refused);
}

static volatile int is_over;

static void *hammer(void *argument)
{
    const genesis_stream stream = STREAM(*(int *)argument);
    char text[64];
    for (size_t size = 1; !is_over; size = size * 7 % (3 * MIB) + 1) {
        void *block = block_of(size, stream);
        CHECK_OK(genesis_option_get("GENESIS_LOG", text, sizeof text));
        genesis_free(block, 0, stream);
        if (size % 16 == 0) {
            CHECK_OK(genesis_cache_empty(0));
            CHECK(stats_of(0).reserved_bytes.peak > 0);
        }
    }
    return NULL;
}

static void hammered(void)
{
    pthread_t threads[HAMMERS];
    int numbers[HAMMERS];
    inherited = block_of(4096, STREAM(HAMMERS));
    for (int index = 0; index < HAMMERS; index++) {
        numbers[index] = index;
        CHECK(pthread_create(&threads[index], NULL, hammer, &numbers[index]) == 0);
    }
    for (int index = 0; index < FORKS; index++) {
        in_child(be_refused);
    }
    is_over = 1;
    for (int index = 0; index < HAMMERS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    genesis_free(inherited, 0, STREAM(HAMMERS));
    CHECK(stats_of(0).allocations == stats_of(0).frees);
}

static void *first_use(void *argument)
{
    (void)argument;
    use_it();
    return NULL;
}

/* Refused or not, but at once. */
static void get_an_answer(void)
{
    void *block = genesis_malloc(1000, 0, STREAM(0));
    CHECK(block != NULL || genesis_last_error_get() == GENESIS_STATUS_FORKED_CHILD);
}

static void fork_during_first_use(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, first_use, NULL) == 0);
    in_child(get_an_answer);
    CHECK(pthread_join(thread, NULL) == 0);
    in_child(be_refused);
}

static void during_first_use(void)
{
    /* Each round in a process that has not used the library yet. */
    for (int index = 0; index < FORKS; index++) {
        in_child(fork_during_first_use);
    }
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"use", use_it},
        {"after_use", after_use},
        {"before_use", before_use},
        {"hammered", hammered},
        {"during_first_use", during_first_use},
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
