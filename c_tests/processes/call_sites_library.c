/* A library that tests/call_sites.rs has loaded and asked for memory. */
#include "../check.h"

#include <pthread.h>

void allocate_in_library(size_t size);
void *allocate_in_foreign_thread(size_t size);

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
