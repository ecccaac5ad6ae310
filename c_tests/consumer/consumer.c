/* A C program of somebody else's, built against the installed library. */
#include <genesis.h>

#include <stdio.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, genesis_last_error_message_get());
    return 1;
}

int main(void)
{
    if (strcmp(genesis_version_get(), EXPECTED_VERSION) != 0) {
        fprintf(stderr, "version %s instead of %s\n", genesis_version_get(), EXPECTED_VERSION);
        return 1;
    }
    void *block = genesis_malloc(1 << 20, 0, NULL);
    if (block == NULL) {
        return failed("genesis_malloc");
    }
    genesis_stats stats = {.struct_size = sizeof stats};
    if (genesis_stats_get(0, &stats) != GENESIS_STATUS_SUCCESS) {
        return failed("genesis_stats_get");
    }
    if (stats.requested_bytes.current != 1 << 20) {
        return failed("requested bytes");
    }
    genesis_free(block, 0, NULL);

    /* A request that cannot be served is refused with a line that says why. */
    if (genesis_malloc((size_t)1 << 60, 0, NULL) != NULL) {
        return failed("an exbibyte");
    }
    printf("%s\n", genesis_last_error_message_get());
    return 0;
}
