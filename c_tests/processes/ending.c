/* A process may end at any time, from any thread, with blocks still live. */
#include "../check.h"

#include <pthread.h>
#include <unistd.h>

static void *held[64];

static void hold_blocks(void)
{
    for (size_t index = 0; index < LENGTH(held); index++) {
        held[index] = block_of(1000 + index * 100000, STREAM(index % 4));
        CHECK_OK(genesis_block_record_stream(held[index], STREAM(9)));
    }
    for (size_t index = 0; index < LENGTH(held); index += 2) {
        genesis_free(held[index], 0, STREAM(0));
        held[index] = NULL;
    }
}

/* Only Elastic has tags. */
static void pause_blocks(void)
{
    if (!strategy_is("Elastic")) {
        return;
    }
    CHECK_OK(genesis_tag_push("weights"));
    hold_blocks();
    CHECK_OK(genesis_tag_pop());
    CHECK_OK(genesis_tag_pause("weights", 1));
}

static void *hammer(void *argument)
{
    const genesis_stream stream = STREAM(*(int *)argument);
    for (size_t size = 1;; size = size * 7 % (3 * MIB) + 1) {
        genesis_free(genesis_malloc(size, 0, stream), 0, stream);
    }
    return NULL;
}

static void start_hammers(void)
{
    static int numbers[3];
    for (int index = 0; index < 3; index++) {
        pthread_t thread;
        numbers[index] = 10 + index;
        CHECK(pthread_create(&thread, NULL, hammer, &numbers[index]) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
}

static void free_and_allocate(void)
{
    for (size_t index = 0; index < LENGTH(held); index++) {
        genesis_free(held[index], 0, STREAM(0));
    }
    CHECK(genesis_malloc(1000, 0, STREAM(1)) != NULL);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
}

/* Runs after the handlers of main's objects, and after those that were registered last. */
__attribute__((destructor)) static void last_words(void)
{
    genesis_free(genesis_malloc(1000, 0, STREAM(1)), 0, STREAM(1));
}

static void *exit_here(void *argument)
{
    (void)argument;
    hold_blocks();
    exit(0);
}

static void free_key(void *block)
{
    genesis_free(block, 0, STREAM(1));
}

/* A thread's destructors may call the library when its own state has gone. */
static void *end_with_a_block(void *argument)
{
    const pthread_key_t key = *(pthread_key_t *)argument;
    CHECK(pthread_setspecific(key, block_of(1000, (genesis_stream)(uintptr_t)2)) == 0);
    CHECK(genesis_malloc(1, 99, STREAM(0)) == NULL);
    return NULL;
}

static void from_thread(void)
{
    pthread_t thread;
    start_hammers();
    CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
    for (;;) {
        genesis_free(genesis_malloc(700, 0, STREAM(5)), 0, STREAM(5));
    }
}

static void in_thread_destructors(void)
{
    pthread_key_t key;
    CHECK(pthread_key_create(&key, free_key) == 0);
    for (int index = 0; index < 20; index++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, end_with_a_block, &key) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(stats_of(0).requested_bytes.current == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    const char *how = arguments[1];
    if (strcmp(how, "from_thread") == 0) {
        from_thread();
    } else if (strcmp(how, "in_thread_destructors") == 0) {
        in_thread_destructors();
    } else if (strcmp(how, "at_once") == 0) {
        hold_blocks();
        start_hammers();
        _exit(0);
    } else if (strcmp(how, "main_thread_first") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
        pthread_exit(NULL);
    } else if (strcmp(how, "at_exit") == 0) {
        hold_blocks();
        CHECK(atexit(free_and_allocate) == 0);
    } else if (strcmp(how, "while_others_work") == 0) {
        hold_blocks();
        start_hammers();
    } else if (strcmp(how, "with_paused_blocks") == 0) {
        pause_blocks();
        CHECK(atexit(free_and_allocate) == 0);
    } else {
        CHECK(strcmp(how, "with_live_blocks") == 0);
        hold_blocks();
    }
    return 0;
}
