/* Eight threads: each on its own stream, all on one stream, and freeing each other's blocks. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 8, HELD = 24 };

/* Each thread's operations, from the command line. */
static long operations;
static int streams_are_shared;

/* A place where a thread leaves a block for the next thread. */
static void *exchanged[HELD];
static pthread_mutex_t exchange = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    pthread_t thread;
    int number;
    unsigned int random;
    unsigned char *blocks[HELD];
    size_t sizes[HELD];
} worker;

/* xorshift: the sequence is the same in every run. */
static unsigned int next_random(worker *work)
{
    work->random ^= work->random << 13;
    work->random ^= work->random >> 17;
    work->random ^= work->random << 5;
    return work->random;
}

static size_t next_size(worker *work)
{
    const unsigned int shift = next_random(work) % 16;
    return (size_t)(next_random(work) % (16u << shift)) + 1;
}

static genesis_stream stream_of(const worker *work)
{
    return STREAM(streams_are_shared ? 0 : work->number);
}

static void allocate(worker *work, unsigned int place)
{
    const size_t size = next_size(work);
    unsigned char *block = block_of(size, stream_of(work));
    block[0] = block[size - 1] = (unsigned char)(work->number + 1);
    work->blocks[place] = block;
    work->sizes[place] = size;
}

static void release(worker *work, unsigned int place)
{
    unsigned char *block = work->blocks[place];
    const size_t size = work->sizes[place];
    CHECK(block[0] == work->number + 1 && block[size - 1] == work->number + 1);
    work->blocks[place] = NULL;
    if (next_random(work) % 8 != 0) {
        genesis_free(block, size, 0, stream_of(work));
        return;
    }
    /* Leaves the block for another thread, and frees what it finds there. */
    pthread_mutex_lock(&exchange);
    void *found = exchanged[place];
    exchanged[place] = block;
    pthread_mutex_unlock(&exchange);
    if (next_random(work) % 4 == 0 && found != NULL) {
        CHECK_OK(genesis_block_record_stream(found, stream_of(work)));
    }
    genesis_free(found, 0, stream_of(work));
}

static void *run(void *argument)
{
    worker *work = (worker *)argument;
    for (long operation = 0; operation < operations; operation++) {
        const unsigned int place = next_random(work) % HELD;
        if (work->blocks[place] == NULL) {
            allocate(work, place);
        } else {
            release(work, place);
        }
        if (operation % 4096 == 4095) {
            CHECK(stats_of(0).requested_bytes.current > 0);
            CHECK_OK(genesis_cache_trim(0, 8 * MIB, NULL));
        }
    }
    for (unsigned int place = 0; place < HELD; place++) {
        if (work->blocks[place] != NULL) {
            release(work, place);
        }
    }
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    return NULL;
}

static void run_all(void)
{
    static worker workers[THREADS];
    memset(workers, 0, sizeof workers);
    for (int number = 0; number < THREADS; number++) {
        workers[number].number = number;
        workers[number].random = 2463534242u + (unsigned int)number;
        CHECK(pthread_create(&workers[number].thread, NULL, run, &workers[number]) == 0);
    }
    for (int number = 0; number < THREADS; number++) {
        CHECK(pthread_join(workers[number].thread, NULL) == 0);
    }
    for (int place = 0; place < HELD; place++) {
        genesis_free(exchanged[place], 0, LEGACY_STREAM);
        exchanged[place] = NULL;
    }
    const genesis_stats stats = stats_of(0);
    CHECK(stats.allocations == stats.frees);
    CHECK(stats.requested_bytes.current == 0 && stats.allocated_bytes.current == 0);
    CHECK(stats.hits + stats.misses == stats.allocations);
    CHECK(stats.requested_bytes.peak > 0);
    CHECK_OK(genesis_cache_empty(0));
    CHECK(stats_of(0).reserved_bytes.current == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    operations = strtol(arguments[1], NULL, 10);
    CHECK(operations > 0);
    run_all();
    streams_are_shared = 1;
    run_all();
    return 0;
}
