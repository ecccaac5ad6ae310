/*
 * Says what the library makes of its environment: a line for the backend, then for each size
 * on the command line what a block of it takes, or the status that refuses it.
 */
#include "../check.h"

int main(int count, char **arguments)
{
    const char *backend = NULL;
    const genesis_status status = genesis_backend_get(&backend);
    printf("backend=%s\n", status == GENESIS_STATUS_SUCCESS ? backend : "none");
    for (int index = 1; index < count; index++) {
        const size_t size = (size_t)strtoull(arguments[index], NULL, 0);
        genesis_last_error_clear();
        void *block = genesis_malloc(size, 0, STREAM(0));
        if (block == NULL) {
            printf("%s: status=%d %s\n", arguments[index], (int)genesis_last_error_get(),
                   genesis_last_error_message_get());
            continue;
        }
        const uint64_t allocated_bytes = stats_of(0).allocated_bytes.current;
        printf("%s: %llu\n", arguments[index], (unsigned long long)allocated_bytes);
        genesis_free(block, size, 0, STREAM(0));
    }
    return 0;
}
