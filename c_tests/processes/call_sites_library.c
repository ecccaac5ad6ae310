/* A library that tests/call_sites.rs has loaded and asked for memory. */
#include "../check.h"

#include <pthread.h>
#include <time.h>

void allocate_in_library(size_t size);
void *allocate_in_foreign_thread(size_t size);
void allocate_when_let(size_t size);
void await_waiting(void);
int let_allocate(int seconds);

static void *volatile kept;

void allocate_in_library(size_t size)
{
    kept = genesis_malloc(size, 0, STREAM(0)); /* HERE library */
}

static void *allocate(void *size)
{
    kept = genesis_malloc(*(size_t *)size, 0, STREAM(0)); /* HERE foreign */
    return kept;
}

/* In a thread that no interpreter knows. */
void *allocate_in_foreign_thread(size_t size)
{
    pthread_t thread;
    void *block = NULL;
    CHECK(pthread_create(&thread, NULL, allocate, &size) == 0);
    CHECK(pthread_join(thread, &block) == 0);
    return block;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum { BUSY, WAITING, LET } state;

static void become(int next)
{
    state = next;
    pthread_cond_broadcast(&changed);
}

/* Waits for let_allocate() in another thread. */
void allocate_when_let(size_t size)
{
    pthread_mutex_lock(&lock);
    become(WAITING);
    while (state != LET) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    kept = genesis_malloc(size, 0, STREAM(0));
    pthread_mutex_lock(&lock);
    become(BUSY);
    pthread_mutex_unlock(&lock);
}

/* Returns once the other thread waits. */
void await_waiting(void)
{
    pthread_mutex_lock(&lock);
    while (state != WAITING) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* Lets the other thread go on, which waits; returns whether it has allocated within that time. */
int let_allocate(int seconds)
{
    struct timespec end;
    CHECK(clock_gettime(CLOCK_REALTIME, &end) == 0);
    end.tv_sec += seconds;
    int status = 0;
    pthread_mutex_lock(&lock);
    become(LET);
    while (state == LET && status == 0) {
        status = pthread_cond_timedwait(&changed, &lock, &end);
    }
    pthread_mutex_unlock(&lock);
    return status == 0;
}
