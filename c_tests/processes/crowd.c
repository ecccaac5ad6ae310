/* crowd ROUNDS: a thousand threads at once, each with a stream of its own. */
#include "../check.h"

#include <pthread.h>

enum { THREADS = 1000 };

static int rounds;
static pthread_barrier_t everybody;

static void *work(void *argument)
{
    const size_t number = *(size_t *)argument;
    /* Half of them on streams that they name, half on their own default stream. */
    const genesis_stream stream = number % 2 == 0 ? STREAM(number) : (genesis_stream)(uintptr_t)2;
    const size_t size = 1000 + number;
    pthread_barrier_wait(&everybody);
    for (int round = 0; round < rounds; round++) {
        unsigned char *block = block_of(size, stream);
        fill(block, size, (unsigned char)number);
        CHECK(genesis_malloc(SIZE_MAX, 0, stream) == NULL);
        CHECK(is_filled(block, size, (unsigned char)number));
        if (round == rounds - 1) {
            pthread_barrier_wait(&everybody);
            CHECK(is_filled(block, size, (unsigned char)number));
        }
        genesis_free(block, size, 0, stream);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    rounds = (int)strtol(arguments[1], NULL, 10);
    CHECK(rounds > 0);
    static pthread_t threads[THREADS];
    static size_t numbers[THREADS];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0);
    CHECK(pthread_barrier_init(&everybody, NULL, THREADS) == 0);
    for (size_t index = 0; index < THREADS; index++) {
        numbers[index] = index;
        CHECK(pthread_create(&threads[index], &attributes, work, &numbers[index]) == 0);
    }
    for (size_t index = 0; index < THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    const genesis_stats stats = stats_of(0);
    CHECK(stats.allocations == (uint64_t)THREADS * (uint64_t)rounds &&
          stats.frees == stats.allocations);
    CHECK(stats.requested_bytes.current == 0);
    CHECK(stats.requested_bytes.peak >= (uint64_t)THREADS * 1000);
    CHECK_OK(genesis_cache_empty(-1));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    return 0;
}
