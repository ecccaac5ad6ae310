/* Warm start, in C: run it twice with GENESIS_PLAN, and the second run's first step asks the driver
 * for no memory. */
#include <genesis.h>
#include <stdio.h>

enum { BLOCKS = 20 };

/* The calls for memory that the driver has had so far. */
static unsigned long long memory_calls(void)
{
    genesis_stats stats = {.struct_size = sizeof stats};
    genesis_stats_get(0, &stats);
    return (unsigned long long)stats.driver_memory_calls;
}

static int step(void)
{
    void *blocks[BLOCKS];
    int served = 0;
    while (served < BLOCKS) {
        blocks[served] = genesis_malloc((size_t)(served + 1) << 20, 0, NULL);
        if (blocks[served] == NULL) {
            break;
        }
        ++served;
    }
    if (served < BLOCKS) {
        fprintf(stderr, "%s\n", genesis_last_error_message_get());
    }
    for (int block = 0; block < served; ++block) {
        genesis_free(blocks[block], 0, NULL);
    }
    return served == BLOCKS;
}

int main(void)
{
    genesis_plan_wait(); /* the library starts; not needed otherwise: requests take what is ready */
    unsigned long long ready = memory_calls();
    for (int number = 1; number <= 3; ++number) {
        if (!step()) {
            return 1;
        }
        if (number == 1) {
            printf("%s, %llu calls for memory in step 1\n",
                   ready > 0 ? "memory was made ready" : "no plan yet", memory_calls() - ready);
        }
    }
    return 0;
}
