/* What the library says of itself: version, backend, devices, status texts, last errors. */
#include "check.h"

#include <pthread.h>

static void version_and_backend(const char *version)
{
    CHECK(strcmp(genesis_version_get(), version) == 0);
    const char *backend = NULL;
    char chosen[16];
    CHECK_OK(genesis_backend_get(&backend));
    CHECK_OK(genesis_option_get("GENESIS_BACKEND", chosen, sizeof chosen));
    CHECK(strcmp(backend, chosen) == 0);
    const char *again = NULL;
    CHECK_OK(genesis_backend_get(&again));
    CHECK(again == backend);
}

static void devices(void)
{
    int count = 0;
    char name[64];
    CHECK_OK(genesis_device_count_get(&count));
    CHECK(count == 1);
    CHECK_OK(genesis_device_name_get(0, name, sizeof name));
    const size_t length = strlen(name);
    CHECK(length > 0);
    memset(name, 'x', sizeof name);
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_device_name_get(0, name, length));
    CHECK(is_filled((unsigned char *)name, sizeof name, 'x'));
    CHECK_OK(genesis_device_name_get(0, name, length + 1));
    CHECK(strlen(name) == length);
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_device_name_get(1, name, sizeof name));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_device_name_get(-1, name, sizeof name));
}

static void status_texts(void)
{
    const char *unknown = genesis_status_text_get(-1);
    CHECK(strcmp(unknown, "unknown status") == 0);
    CHECK(strcmp(genesis_status_text_get(GENESIS_STATUS_OUT_OF_HOST_MEMORY + 1), unknown) == 0);
    CHECK(strcmp(genesis_status_text_get(INT_MAX), unknown) == 0);
    CHECK(strcmp(genesis_status_text_get(GENESIS_STATUS_SUCCESS), "success") == 0);
    CHECK(strcmp(genesis_status_text_get(GENESIS_STATUS_OUT_OF_MEMORY), "out of memory") == 0);
    for (int status = 0; status <= GENESIS_STATUS_OUT_OF_HOST_MEMORY; status++) {
        const char *text = genesis_status_text_get(status);
        CHECK(text[0] != '\0' && strcmp(text, unknown) != 0);
        for (int other = 0; other < status; other++) {
            CHECK(strcmp(text, genesis_status_text_get(other)) != 0);
        }
    }
}

static void last_error(void)
{
    genesis_last_error_clear();
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    CHECK(strcmp(genesis_last_error_message_get(), "") == 0);
    CHECK(genesis_malloc(1, 99, STREAM(0)) == NULL);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_INVALID_DEVICE);
    CHECK_MESSAGE("no device 99: there are 1");
    /* Success, and asking, leave it as it was. */
    genesis_free(block_of(1, STREAM(0)), 0, STREAM(0));
    CHECK(genesis_last_error_get() == GENESIS_STATUS_INVALID_DEVICE);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_INVALID_DEVICE);
    /* The latest failure is the one. */
    CHECK(genesis_option_set("GENESIS_LOG", "loud") == GENESIS_STATUS_INVALID_ARGUMENT);
    CHECK(genesis_last_error_get() == GENESIS_STATUS_INVALID_ARGUMENT);
    genesis_last_error_clear();
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
}

static pthread_barrier_t barrier;

static void *fail_otherwise(void *argument)
{
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    const int device = *(const int *)argument;
    CHECK(genesis_malloc(1, device, STREAM(0)) == NULL);
    pthread_barrier_wait(&barrier);
    char expected[64];
    snprintf(expected, sizeof expected, "no device %d: there are 1", device);
    CHECK_MESSAGE(expected);
    pthread_barrier_wait(&barrier);
    genesis_last_error_clear();
    CHECK(genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
    return NULL;
}

static void last_errors_are_the_threads_own(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int numbers[THREADS];
    CHECK(genesis_malloc(1, 99, STREAM(0)) == NULL);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int index = 0; index < THREADS; index++) {
        numbers[index] = 100 + index;
        CHECK(pthread_create(&threads[index], NULL, fail_otherwise, &numbers[index]) == 0);
    }
    for (int index = 0; index < THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(genesis_last_error_get() == GENESIS_STATUS_INVALID_DEVICE);
    CHECK_MESSAGE("no device 99");
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    version_and_backend(arguments[1]);
    devices();
    status_texts();
    last_error();
    last_errors_are_the_threads_own();
    return 0;
}
