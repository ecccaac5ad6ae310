/* A process may end at any time, from any thread, with live blocks and blocks that wait. */
#include "cuda.h"

#include <pthread.h>
#include <unistd.h>

static void *held[64];

static void hold_blocks(void)
{
    for (size_t index = 0; index < LENGTH(held); index++) {
        CHECK_OK(cudaMalloc(&held[index], 1000 + index * 100000));
    }
    for (size_t index = 0; index < LENGTH(held); index += 2) {
        CHECK_OK(cudaFree(held[index]));
        held[index] = NULL;
    }
    CHECK_SERVED((long long)LENGTH(held));
}

static void *hammer(void *argument)
{
    (void)argument;
    for (size_t bytes = 1;; bytes = bytes * 7 % (3 * MIB) + 1) {
        void *block = NULL;
        /* The driver answers DEINITIALIZED while the process ends. */
        if (cudaMalloc(&block, bytes) == CUDA_SUCCESS) {
            (void)cudaFree(block);
        }
    }
    return NULL;
}

static void start_hammers(void)
{
    for (int index = 0; index < 3; index++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, hammer, NULL) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
}

static void free_and_allocate(void)
{
    void *block;
    for (size_t index = 0; index < LENGTH(held); index++) {
        (void)cudaFree(held[index]);
    }
    (void)cudaMalloc(&block, MIB);
}

/* Runs after the handlers that were registered last. */
__attribute__((destructor)) static void last_words(void)
{
    void *block = NULL;
    if (cudaMalloc(&block, MIB) == CUDA_SUCCESS) {
        (void)cudaFree(block);
    }
    (void)cudaDeviceSynchronize();
}

static void *exit_here(void *argument)
{
    (void)argument;
    hold_blocks();
    exit(0);
}

static void free_key(void *block)
{
    CHECK_OK(cudaFree(block));
}

/* A thread's destructors may call CUDA after the libraries' own state of the thread is gone. */
static void *end_with_a_block(void *key)
{
    void *block;
    CHECK_OK(cudaMalloc(&block, 1000));
    CHECK(pthread_setspecific(*(pthread_key_t *)key, block) == 0);
    return NULL;
}

static void from_thread(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
    /* It ends the process. */
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!"this thread goes on");
}

static void main_thread_first(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
    pthread_exit(NULL);
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
    CHECK_SERVED(20);
}

static void at_once(void)
{
    hold_blocks();
    start_hammers();
    _exit(0);
}

static void at_exit(void)
{
    hold_blocks();
    CHECK(atexit(free_and_allocate) == 0);
}

static void while_others_work(void)
{
    hold_blocks();
    start_hammers();
}

/* The way CUDA's samples end. A new context has nothing of Genesis's, which then does not serve. */
static void with_a_reset(void)
{
    void *block = NULL;
    hold_blocks();
    CHECK_OK(cudaDeviceReset());
    CHECK_OK(cudaMalloc(&block, MIB));
    CHECK_SERVED((long long)LENGTH(held));
    CHECK_OK(cudaFree(block));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaDeviceReset());
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"with_live_blocks", hold_blocks},
        {"from_thread", from_thread},
        {"main_thread_first", main_thread_first},
        {"in_thread_destructors", in_thread_destructors},
        {"at_once", at_once},
        {"at_exit", at_exit},
        {"while_others_work", while_others_work},
        {"with_a_reset", with_a_reset},
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
