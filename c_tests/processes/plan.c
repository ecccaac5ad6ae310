/* plan STEPS: a program whose memory grows, run with GENESIS_PLAN. Prints the driver's calls
 * for memory before its first step, in it, and after it. */
#include "../check.h"

enum { BLOCKS = 12 };

static void step(void)
{
    void *blocks[BLOCKS];
    for (size_t index = 0; index < BLOCKS; index++) {
        blocks[index] = block_of((1 + index) * MIB, STREAM(index % 2));
    }
    for (size_t index = 0; index < BLOCKS; index++) {
        genesis_free(blocks[index], 0, STREAM(index % 2));
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    int devices;
    CHECK_OK(genesis_device_count_get(&devices));
    CHECK_OK(genesis_plan_wait());
    const uint64_t before = stats_of(0).driver_memory_calls;
    step();
    const uint64_t first = stats_of(0).driver_memory_calls;
    for (long steps = strtol(arguments[1], NULL, 10); steps > 1; steps--) {
        step();
    }
    const uint64_t last = stats_of(0).driver_memory_calls;
    printf("%d %d %d\n", (int)before, (int)(first - before), (int)(last - first));
    return 0;
}
