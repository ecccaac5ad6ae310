/* What benches/call_sites.rs measures: blocks allocated and freed at a given stack depth. */
#define _POSIX_C_SOURCE 199309L

#include <genesis.h>

#include <time.h>

double churn(int levels, int count);

/* Nanoseconds for each block allocated and freed, `levels` frames down. */
double churn(int levels, int count)
{
    static void *volatile block;
    struct timespec began, ended;
    double ns;
    if (levels > 1) {
        ns = churn(levels - 1, count);
        /* Keeps the call above from becoming a jump. */
        block = NULL;
        return ns;
    }
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int round = 0; round < count; round++) {
        block = genesis_malloc(4096, 0, NULL);
        genesis_free(block, 0, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return ((ended.tv_sec - began.tv_sec) * 1e9 + (ended.tv_nsec - began.tv_nsec)) / count;
}
